"""`sardonyx ops`: the operators, as a table, one by one, or as the Markdown page docs/operators.md."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import groupby

import sardonyx
from sardonyx.cli.tables import columns, counted
from sardonyx.cli.usage import UsageError

PAGE_HEAD = """\
# Operators

Every operator Sardonyx knows, by domain. This page is written by `make docs` from the operator table; do not edit it.

*Opset* lists the versions that introduced or changed an operator, *from* is the oldest one whose meaning is implemented.
*Runs as* says what computes it: `native` is compiled code, where types and shapes allow it (`sardonyx explain` tells for a
model), `host` the NumPy definition; `known` needs no run, and `control` runs as the nodes of its bodies do.
*Shapes* says whether a symbolic shape rule is defined; where it is not, types follow from
the signature and shapes are known at run time only. *Types* are those of the first type variable of the newest version.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """Describe the subcommand to the parser."""
    parser = commands.add_parser(
        "ops",
        parents=[shared],
        help="list the operators",
        description="List all operators with their versions and types, or say all that is known of one.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one operator, in any domain; case does not matter")
    parser.add_argument("--domain", help="only this domain: ai.onnx, ai.onnx.ml, com.microsoft ...")
    parser.add_argument("--markdown", action="store_true", help="the table as a Markdown page")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Print the table, or the details of the operators of one name."""
    known = sardonyx.operators(args.domain)
    if not known:
        domains = ", ".join(sorted({operator.domain for operator in sardonyx.operators()}))
        raise UsageError(f"there is no domain {args.domain!r}", f"known: {domains}")
    if args.name:
        print("\n\n".join("\n".join(_details(operator)) for operator in _named(args.name, known)))
    elif args.markdown:
        print("\n".join(markdown_lines(known)).rstrip())
    else:
        print("\n".join(_table(known)).rstrip())
    return 0


def markdown_lines(known: Sequence[sardonyx.OperatorInfo]) -> Iterator[str]:
    """The page docs/operators.md, line by line."""
    yield PAGE_HEAD
    for domain, group in groupby(known, key=lambda operator: operator.domain):
        listed = list(group)
        yield from (f"## {domain} ({counted(len(listed), 'operator')})", "")
        yield from ("| operator | opset | from | runs as | shapes | types |", "|---|---|---|---|---|---|")
        for operator in listed:
            name = f"{operator.name} (deprecated)" if operator.deprecated else operator.name
            since = "-" if operator.evaluated_from is None else operator.evaluated_from
            shapes = "yes" if operator.has_shape_rule else "no"
            yield f"| {name} | {_versions(operator)} | {since} | {operator.execution} | {shapes} | {_first_types(operator)} |"
        yield ""


def _named(name: str, known: Sequence[sardonyx.OperatorInfo]) -> list[sardonyx.OperatorInfo]:
    found = [operator for operator in known if operator.name.lower() == name.lower()]
    if not found:
        names = {operator.name.lower(): operator.name for operator in known}
        near = [names[each] for each in get_close_matches(name.lower(), names, n=5)]
        near += sorted(full for low, full in names.items() if name.lower() in low and full not in near)
        raise UsageError(f"there is no operator {name!r}", f"similar: {', '.join(near)}" if near else "`sardonyx ops` lists all")
    return found


def _table(known: Sequence[sardonyx.OperatorInfo]) -> Iterator[str]:
    for domain, group in groupby(known, key=lambda operator: operator.domain):
        listed = list(group)
        yield f"{domain}: {counted(len(listed), 'operator')}"
        rows = [(operator.name, operator.execution, _versions(operator), _first_types(operator)) for operator in listed]
        yield from columns(rows, header=("operator", "runs as", "opset", "types"))
        yield ""


def _details(operator: sardonyx.OperatorInfo) -> Iterator[str]:
    yield f"{operator.domain}::{operator.name}{' (deprecated)' if operator.deprecated else ''}"
    facts = [
        ("opset", _versions(operator)),
        ("implemented from", "-" if operator.evaluated_from is None else str(operator.evaluated_from)),
        ("runs as", operator.execution),
        ("shape rule", "yes" if operator.has_shape_rule else "no"),
        ("inputs", ", ".join(operator.inputs)),
        ("outputs", ", ".join(operator.outputs)),
        ("attributes", ", ".join(operator.attributes)),
        *((variable, " ".join(types)) for variable, types in operator.types.items()),
    ]
    yield from columns([fact for fact in facts if fact[1]])


def _versions(operator: sardonyx.OperatorInfo) -> str:
    return " ".join(map(str, operator.versions))


def _first_types(operator: sardonyx.OperatorInfo) -> str:
    return " ".join(next(iter(operator.types.values()), ()))
