"""Results as Markdown: tables of all models by kind, what was measured beside it, and the steps that run in Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Results = Mapping[str, Any]

PEER = "onnxruntime"
BUSY = 0.75  # load for each core from which on the machine is called busy
WRONG = 1e-3  # a difference from which on the answers are called different
BEGIN, END = "<!-- begin: written by make bench -->", "<!-- end -->"
BEGIN_TARGET = "<!-- begin: written by make bench with a target -->"
BEGIN_PEERS = "<!-- begin: written by make bench-peers -->"
BEGIN_NEIGHBOUR = "<!-- begin: written by make bench-neighbour -->"


def ratios(results: Results, which: str = "best") -> dict[str, float]:
    """Their time over ours, by model; models that could not be compared are left out."""
    found = {}
    for name, record in results["models"].items():
        ratio = ((record.get("ratio") or {}).get(PEER) or {}).get(which)
        if ratio:
            found[name] = float(ratio)
    return found


def geometric_mean(values: Mapping[str, float] | Sequence[float]) -> float:
    """The mean of ratios; 0 without any."""
    numbers = list(values.values() if isinstance(values, Mapping) else values)
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if numbers else 0.0


def by_kind(results: Results) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The records of each kind, in the order in which kinds come first."""
    kinds: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, record in results["models"].items():
        kinds.setdefault(record["kind"], {})[name] = record
    return kinds


def table_lines(results: Results) -> Iterable[str]:
    """A table for each kind, one row a model. Times are best times; `ratio` is theirs over ours, in brackets of the medians."""
    for number, (kind, records) in enumerate(by_kind(results).items()):
        if number:
            yield ""
        yield f"### {kind[0].upper()}{kind[1:]}"
        yield ""
        yield "| model | Sardonyx | onnxruntime | ratio | goal | error | peak memory | open: cold, warm | onnxruntime opens |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for record in records.values():
            yield f"| {' | '.join(_row(record))} |"


def _row(record: Mapping[str, Any]) -> list[str]:
    engines = record.get("engines", {})
    ours, theirs = engines.get("sardonyx", {}), engines.get(PEER, {})
    error = record.get("error") or ours.get("error") or theirs.get("error")
    if error or "timing" not in ours or "timing" not in theirs:
        shown = time_text(theirs["timing"]["best"]) if "timing" in theirs else "-"
        return [
            record["title"],
            "-",
            shown,
            "-",
            f"{record['goal']:g}",
            str(error or "not measured").replace("|", "/"),
            "-",
            "-",
            "-",
        ]
    ratio = record["ratio"][PEER]
    fresh = record.get("fresh", {})
    memory = [_figure(fresh, engine, "peak_bytes") for engine in ("sardonyx", PEER)]
    opens = [_figure(fresh, engine, "creation") for engine in ("sardonyx", PEER)]
    return [
        record["title"],
        time_text(ours["timing"]["best"]),
        time_text(theirs["timing"]["best"]),
        f"{_bold(ratio['best'], record['goal'])} ({ratio['median']:.2f})",
        f"{record['goal']:g}",
        _difference_text(record.get("exact", theirs.get("difference"))),
        f"{memory[0] / 1e6:.0f} MB / {memory[1] / 1e6:.0f} MB" if all(memory) else "-",
        f"{time_text(opens[0]['cold'])}, {time_text(opens[0]['warm'])}" if opens[0] else "-",
        time_text(opens[1]["warm"]) if opens[1] else "-",
    ]


def kind_lines(results: Results) -> Iterable[str]:
    """One row a kind: what is wanted, the mean, the lowest, how many models reach what is wanted of them."""
    yield "| kind | models | at least | mean ratio | lowest | reach it | largest error |"
    yield "|---|---|---|---|---|---|---|"
    found = ratios(results)
    for kind, records in by_kind(results).items():
        measured = {name: found[name] for name in records if name in found}
        if not measured:
            continue
        goals = sorted({float(record["goal"]) for record in records.values()})
        lowest = min(measured, key=lambda name: measured[name])
        reached = sum(ratio >= records[name]["goal"] for name, ratio in measured.items())
        errors = [each for record in records.values() if isinstance(each := record.get("exact"), (int, float))]
        columns = [
            kind,
            str(len(measured)),
            " / ".join(f"{goal:g}" for goal in goals),
            f"{geometric_mean(measured):.2f}",
            f"{measured[lowest]:.2f} ({records[lowest]['title']})",
            f"{reached} of {len(measured)}",
            f"{max(errors):.0e}" if errors else "-",
        ]
        yield f"| {' | '.join(columns)} |"
    if found:
        reached = sum(ratio >= results["models"][name]["goal"] for name, ratio in found.items())
        means = f"**{geometric_mean(found):.2f}** | {min(found.values()):.2f}"
        yield f"| all | {len(found)} | | {means} | {reached} of {len(found)} | |"


def _figure(fresh: Mapping[str, Any], engine: str, name: str) -> Any:
    """A figure, or None where it is missing or failed."""
    found = fresh.get(engine, {}).get(name)
    return None if isinstance(found, Mapping) and "error" in found else found


def _bold(ratio: float, goal: float = 1.0) -> str:
    return f"**{ratio:.2f}**" if ratio >= goal else f"{ratio:.2f}"


def time_text(seconds: float) -> str:
    """`3.25 ms`, in the unit that fits."""
    for limit, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us")):
        if seconds >= limit:
            number = seconds * factor
            return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f} {unit}"
    raise ValueError(f"{seconds} is no duration")


def summary_lines(results: Results) -> Iterable[str]:
    """Means and the figures beside the times."""
    best, median = ratios(results), ratios(results, "median")
    if best:
        worst = min(best, key=lambda name: best[name])
        title = results["models"][worst]["title"]
        yield (
            f"Geometric mean of the ratio over {len(best)} models: {geometric_mean(best):.2f} "
            f"(medians {geometric_mean(median):.2f}); lowest: {best[worst]:.2f} ({title})."
        )
    for peer, each in _other_peers(results).items():
        yield f"- Against {peer}: geometric mean {geometric_mean(each):.2f} over {len(each)} models that it runs"
    for record in results["models"].values():
        scaling, fresh = record.get("scaling", {}), record.get("fresh", {})
        for key, text in (("two_threads_over_one", "two threads over one"), ("four_callers_over_one", "four callers over one")):
            if key in scaling:
                figures = ", ".join(f"{engine} {ratio:.2f}" for engine, ratio in scaling[key].items())
                yield f"- {record['title']}, {text}: {figures}"
        starts = {engine: _figure(fresh, engine, "start") for engine in fresh}
        if all(starts.values()) and starts:
            figures = ", ".join(f"{engine} {time_text(start['total'])}" for engine, start in starts.items())
            yield f"- {record['title']}, import, session and first run in a fresh process: {figures}"
        shapes = {engine: _figure(fresh, engine, "shapes") for engine in fresh}
        if all(shapes.values()) and shapes:
            figures = ", ".join(f"{engine} {many / alone:.2f}" for engine, (many, alone) in shapes.items())
            yield f"- {record['title']}, memory after 200 random shapes over memory after the largest alone: {figures}"


def _other_peers(results: Results) -> dict[str, list[float]]:
    """Ratios against engines other than onnxruntime, where they were measured."""
    found: dict[str, list[float]] = {}
    for record in results["models"].values():
        for peer, ratio in (record.get("ratio") or {}).items():
            if peer != PEER:
                found.setdefault(peer, []).append(float(ratio["best"]))
    return found


def host_lines(results: Results) -> Iterable[str]:
    """Per model: how many steps run in Python, what they cost, and the slowest kernels."""
    yield "| model | kernels | host steps | native time | host time | host operators (nodes, time) | slowest kernels |"
    yield "|---|---|---|---|---|---|---|"
    for record in results["models"].values():
        steps = record.get("steps")
        if not steps or "error" in steps:
            continue
        host = ", ".join(f"{name} ({count}, {time_text(spent)})" for name, count, spent in steps["host_operators"])
        kernels = ", ".join(
            f"{_short(label)} ({calls}, {time_text(spent)})" for label, calls, spent in steps["slowest_kernels"][:4]
        )
        counts = (
            f"{steps['kernels']} | {steps['host']} | {time_text(steps['native_seconds'])} | {time_text(steps['host_seconds'])}"
        )
        yield f"| {record['title']} | {counts} | {host or '-'} | {kernels or '-'} |"


def _short(label: str) -> str:
    return label if len(label) <= 60 else f"{label[:50]}... ({label.count('+') + 1} nodes)"


def machine_line(results: Results) -> str:
    """What it was measured on."""
    machine = results["machine"]
    flags = "AVX-512" if "avx512f" in machine["flags"] else "AVX2" if "avx2" in machine["flags"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    processor = f"{machine['processor']}{f' ({flags})' if flags else ''}"
    load = machine.get("load") or 0.0
    busy = f" Other work ran on the machine at the same time (load {load:.1f})." if load > BUSY * machine["cores"] else ""
    return (
        f"Measured on {machine['date']}: {processor}, {machine['cores']} cores, {results['threads']} threads for each engine; "
        f"{machine['system']}, Python {machine['python']}, {versions}.{busy}"
    )


def target_lines(results: Results, full: Results) -> Iterable[str]:
    """What was compiled for a target, beside the times with all of the machine (`full`) if the target is less than that."""
    if results["target"] != _whole_target(results["machine"]["flags"]):
        yield from _lesser_target_lines(results, full)
        return
    yield from kind_lines(results)
    yield ""
    yield from _other_machine_lines(results)


def _whole_target(flags: Sequence[str]) -> str:
    """The target that is all of a machine with these flags."""
    return "x86-64-v4" if "avx512f" in flags else "x86-64-v3" if "avx2" in flags else "x86-64-v2"


def _timed_rows(results: Results, columns: int) -> Iterable[tuple[str, Mapping[str, Any], list[str]]]:
    """For each model its name, its record, and a row without figures if it could not be measured (else nothing)."""
    for name, record in results["models"].items():
        ours, theirs = (record.get("engines", {}).get(engine, {}) for engine in ("sardonyx", PEER))
        error = record.get("error") or ours.get("error") or theirs.get("error")
        missing = error or "timing" not in ours or "timing" not in theirs
        reason = str(error or "not measured").replace("|", "/")
        yield name, record, [record["title"], reason, *["-"] * (columns - 2)] if missing else []


def _other_machine_lines(results: Results) -> Iterable[str]:
    """One row a model, on a machine that has no more than the target."""
    yield "| model | Sardonyx | onnxruntime | ratio | goal | from onnxruntime |"
    yield "|---|---|---|---|---|---|"
    for _, record, missing in _timed_rows(results, 6):
        engines = record.get("engines", {})
        columns = missing or [
            record["title"],
            time_text(engines["sardonyx"]["timing"]["best"]),
            time_text(engines[PEER]["timing"]["best"]),
            f"{_bold(record['ratio'][PEER]['best'], record['goal'])} ({record['ratio'][PEER]['median']:.2f})",
            f"{record['goal']:g}",
            _difference_text(record.get("exact", engines[PEER].get("difference"))),
        ]
        yield f"| {' | '.join(columns)} |"


def _lesser_target_lines(results: Results, full: Results) -> Iterable[str]:
    """One row a model, compiled for less than the machine has; `full` has the times with all of it."""
    target = results["target"]
    yield f"| model | {target} | all of the machine | slower | onnxruntime over {target} | from onnxruntime | from NumPy |"
    yield "|---|---|---|---|---|---|---|"
    slower = []
    times = full["models"] if results["machine"]["flags"] == full["machine"]["flags"] else {}
    for name, record, missing in _timed_rows(results, 7):
        if missing:
            yield f"| {' | '.join(missing)} |"
            continue
        ours, theirs = (record["engines"][engine] for engine in ("sardonyx", PEER))
        time = ours["timing"]["best"]
        whole = times.get(name, {}).get("engines", {}).get("sardonyx", {}).get("timing", {}).get("best")
        slower.extend([time / whole] if whole else [])
        columns = [
            record["title"],
            time_text(time),
            time_text(whole) if whole else "-",
            f"{time / whole:.2f}" if whole else "-",
            _bold(record["ratio"][PEER]["best"]),
            _difference_text(theirs.get("difference")),
            _difference_text(record.get("reference")),
        ]
        yield f"| {' | '.join(columns)} |"
    best = ratios(results)
    if best and slower:
        yield ""
        yield (
            f"Geometric means over {len(best)} models: {geometric_mean(slower):.2f} times the time with all of the machine, "
            f"{geometric_mean(best):.2f} times as fast as onnxruntime, which uses all of it."
        )


def peer_lines(results: Results) -> Iterable[str]:
    """One row a model: our time, and that of every engine that was asked for, with the ratio."""
    peers = list(dict.fromkeys(peer for record in results["models"].values() for peer in record.get("engines", {})))
    peers.remove("sardonyx")
    yield f"| model | Sardonyx | {' | '.join(f'{peer} | ratio' for peer in peers)} |"
    yield f"|---|---|{'---|---|' * len(peers)}"
    for record in results["models"].values():
        engines = record.get("engines", {})
        if "timing" not in engines.get("sardonyx", {}):
            continue
        columns = [record["title"], time_text(engines["sardonyx"]["timing"]["best"])]
        for peer in peers:
            timing = engines.get(peer, {}).get("timing")
            columns += [time_text(timing["best"]), _bold(record["ratio"][peer]["best"])] if timing else ["-", "-"]
        yield f"| {' | '.join(columns)} |"
    yield ""
    for peer, each in _other_peers(results).items():
        mean, ahead = geometric_mean(each), sum(ratio > 1 for ratio in each)
        yield f"- {peer}: geometric mean {mean:.2f} over the {len(each)} models that it runs, {ahead} of them above 1"


def _difference_text(difference: object) -> str:
    if not isinstance(difference, (int, float)):
        return "-" if difference is None else f"not compared: {difference}".replace("|", "/")
    return f"{difference:.0e}" + (" **WRONG**" if difference > WRONG else "")


def page_with(page: str, results: Results) -> str:
    """The page with the results in the place that is marked for them."""
    lines = [machine_line(results), "", *kind_lines(results), "", *summary_lines(results), "", *table_lines(results)]
    return _filled(page, BEGIN, lines)


def readme_with(page: str, results: Results) -> str:
    """The README with one row for each kind of model in the place that is marked for them."""
    return _filled(page, BEGIN, [machine_line(results), "", *kind_lines(results)])


def page_with_target(page: str, results: Results, full: Results) -> str:
    """The page with what was compiled for a lesser target in the place that is marked for it."""
    return _filled(page, BEGIN_TARGET, [machine_line(results), "", *target_lines(results, full)])


def page_with_peers(page: str, results: Results) -> str:
    """The page with the comparison with other engines in the place that is marked for it."""
    return _filled(page, BEGIN_PEERS, [machine_line(results), "", *peer_lines(results)])


def page_with_neighbour(page: str, lines: Sequence[str]) -> str:
    """The page with what was measured beside a busy process in the place that is marked for it."""
    return _filled(page, BEGIN_NEIGHBOUR, lines)


def _filled(page: str, mark: str, lines: Sequence[str]) -> str:
    before, begin, rest = page.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks its marks {mark} and {END}")
    written = "\n".join(lines)
    return f"{before}{mark}\n\n{written}\n\n{END}{after}"
