"""A tokenizer and a count of tokens, and of sequences of them, become one operator, which makes no array of tokens.

    TfIdfVectorizer(Flatten(com.microsoft::Tokenizer(x) {tokenexp = "[a-z]+"})) {pool_strings}
      =>   TokenCounts(x) {characters = "a-z", words}, and Mul by the weights where there are any

What changes letters between upper and lower case before (StringNormalizer) is part of it. Runs after the portable passes.
Refuses: expressions that are more than runs of a class of letters and digits or single characters, separators, marks around
tokens, tokens that are left out of a sequence, a pool with the word that pads rows, more than one text in a row, stop words.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import ONNX_DOMAIN, Model, Node, Value
from sardonyx.passes.classical_rule import ScoreRewriter
from sardonyx.passes.protocol import PassResult, Reject, exchange_node
from sardonyx.passes.rewriter import MICROSOFT, all_graphs
from sardonyx.records import dataclass

_MOST_SEQUENCES: Final = 1 << 62  # of all known words, as many as the longest counted one has
_WORD: Final = "A-Za-z0-9_"  # what \w stands for; \b is where a run of those begins or ends
_ATOM: Final = re.compile(r"(\\w|\[(?:\\w|[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_])+\])(\+|\{(\d{1,3}),\})?")


@dataclass(frozen=True)
class CountTokens:
    """Ensures: what counts characters, or tokens that are plain runs of them, is one operator."""

    name: ClassVar[str] = "CountTokens"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("TfIdfVectorizer",))

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches, in subgraphs too."""
        graphs = all_graphs(model)
        g = ScoreRewriter(model, graphs)
        reasons: dict[str, None] = {}
        changes = 0
        for graph in g.graphs():
            for node in graph.nodes:
                if node.op_type not in self.roots or node.domain != ONNX_DOMAIN:
                    continue
                tokenizer = _tokenizer(node)
                if tokenizer is None:
                    continue
                made = _counted(g.at(node), node, tokenizer)
                changes += exchange_node(g, node, made, reasons)
        return PassResult(changes > 0, tuple(reasons), changes)


def _tokenizer(node: Node) -> Node | None:
    """The tokenizer whose tokens a node reads, a row for each text."""
    value = node.inputs[0]
    source = None if value is None else value.producer
    is_flat = True
    if source is not None and source.op_type == "Flatten" and source.domain == ONNX_DOMAIN and source.attr("axis", 1) == 1:
        value = source.inputs[0]
        source = None if value is None else value.producer
        is_flat = False
    if source is None or source.op_type != "Tokenizer" or source.domain != MICROSOFT:
        return None
    texts = source.inputs[0]
    shape = None if texts is None else texts.shape
    if shape is None or not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1 and not is_flat)):
        return None
    return source


def _texts(value: Value) -> tuple[Value, str]:
    """The texts that a tokenizer reads, as they were before a StringNormalizer and a Reshape to a vector, and their new case."""
    source, case = value.producer, ""
    if source is not None and source.op_type == "StringNormalizer" and source.domain == ONNX_DOMAIN:
        attrs, given = attribute_values(source), source.inputs[0]
        if attrs.get("stopwords") or given is None or given.shape is None or len(given.shape) != 1:
            return value, ""
        value, case = given, attrs["case_change_action"]
        source = value.producer
    if source is not None and source.op_type in ("Reshape", "Flatten", "Squeeze") and source.domain == ONNX_DOMAIN:
        given = source.inputs[0]
        shape = None if given is None else given.shape
        if given is not None and shape is not None and len(value.shape or ()) == 1 and (len(shape) == 1 or shape[1:] == (1,)):
            value = given
    return value, case


def _sequences(attrs: dict[str, Any]) -> list[tuple[str, ...]] | None:
    """The sequences of words of a pool, in the order of their columns; None if it is none, or more than what is counted."""
    pool, starts = tuple(attrs.get("pool_strings") or ()), [*attrs["ngram_counts"]]
    found = []
    for length, (first, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
        if not 0 <= first <= end <= len(pool) or (end - first) % length:
            return None
        if first < end and not attrs["min_gram_length"] <= length <= attrs["max_gram_length"]:
            return None
        found += [pool[begin : begin + length] for begin in range(first, end, length)]
    if not found or starts[0] != 0 or len(set(found)) != len(found) or len(found) != len(attrs["ngram_indexes"]):
        return None
    return found


def _run(expression: str) -> tuple[str, int]:
    """The class of characters whose runs are the tokens of an expression, and how long they are at least; "" if it is another.

    A class may stand there several times, as in `[a-z][a-z]+`, as long as one of them takes as many as there are.
    """
    if expression == ".":
        return ".", 1
    inner = expression.removeprefix("\\b").removesuffix("\\b")
    classes, least, position, is_open = set(), 0, 0, False
    while position < len(inner):
        atom = _ATOM.match(inner, position)
        if atom is None:
            return "", 0
        classes.add(atom[1].strip("[]").replace("\\w", _WORD))
        least += int(atom[3]) if atom[3] else 1
        is_open = is_open or bool(atom[2])
        position = atom.end()
    if len(classes) != 1 or not is_open or least < 1 or (inner != expression and classes != {_WORD}):
        return "", 0
    return classes.pop(), least


def _counted(g: Any, node: Node, tokenizer: Node) -> Value | Reject:
    """What takes the place of the counts."""
    words, attrs = attribute_values(tokenizer), attribute_values(node)
    characters, least = _run(words.get("tokenexp") or "")
    if not characters or words.get("separators") or words["mark"] or words["mincharnum"] < 1:
        return Reject("tokens that are not plain runs of characters")
    if characters == "." and words["mincharnum"] > 1:
        return Reject("single characters that are too short")
    try:
        re.compile(f"[{characters}]")
    except re.error:
        return Reject("a class of characters that is none")
    sequences, columns = _sequences(attrs), attrs["ngram_indexes"]
    if sequences is None:
        return Reject("a pool that does not fit")
    pool = tuple(word for sequence in sequences for word in sequence)
    lengths = tuple(map(len, sequences))
    if words["pad_value"] in pool or (attrs["max_skip_count"] and max(lengths) > 1):
        return Reject("tokens that are left out of a sequence, or a pool with the word that pads rows")
    if (len(set(pool)) + 1) ** max(lengths) > _MOST_SEQUENCES:
        return Reject("too many sequences")
    if min(columns) < 0 or attrs["mode"] not in ("TF", "IDF", "TFIDF"):
        return Reject("columns or a mode that do not fit")
    given = attrs.get("weights")
    if given is not None and len(given) != len(sequences):
        return Reject("weights that do not fit the pool")
    assert tokenizer.inputs[0] is not None
    texts, case = _texts(tokenizer.inputs[0])
    more: dict[str, Any] = {"case": case} if case else {}
    if max(lengths) > 1:
        more["lengths"] = lengths
    counts = g.op(
        "TokenCounts", texts, domain="sardonyx", characters=characters, least=max(least, words["mincharnum"]), words=pool,
        columns=tuple(columns), **more,
    )  # fmt: skip
    if attrs["mode"] == "IDF":
        counts = g.op("Min", counts, g.scalar(counts, 1.0))
    if attrs["mode"] == "TF":
        return counts  # type: ignore[no-any-return]
    weights = np.ones(max(columns) + 1, np.float32)
    for column, weight in zip(columns, given or ()):
        weights[column] = weight
    return g.op("Mul", counts, g.row(counts, weights))  # type: ignore[no-any-return]
