"""A tokenizer and a count of single tokens become one operator, which makes no array of tokens.

    TfIdfVectorizer(Flatten(com.microsoft::Tokenizer(x) {tokenexp = "[a-z]+"})) {pool_strings}
      =>   TokenCounts(x) {characters = "a-z", words}, and Mul by the weights where there are any

Runs after the portable passes. Refuses: expressions that are more than runs of a class of letters and digits, separators, marks
around tokens, pairs of tokens and longer ones, a pool with the word that pads rows, more than one text in a row.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.graph import ONNX_DOMAIN, Model, Node, Value
from sardonyx.passes.classical_rule import ScoreRewriter
from sardonyx.passes.protocol import PassResult, Reject
from sardonyx.passes.rewriter import MICROSOFT, all_graphs
from sardonyx.records import dataclass

_RUN: Final = re.compile(r"\[((?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9_])+)\]\+")


@dataclass(frozen=True)
class CountTokens:
    """Ensures: what counts single tokens of plain runs of characters is one operator."""

    name: ClassVar[str] = "CountTokens"
    ort_names: ClassVar[tuple[str, ...]] = ()

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches, in subgraphs too."""
        graphs = all_graphs(model)
        g = ScoreRewriter(model, graphs)
        reasons: dict[str, None] = {}
        changes = 0
        for graph in g.graphs():
            for node in graph.nodes:
                if node.op_type != "TfIdfVectorizer" or node.domain != ONNX_DOMAIN:
                    continue
                tokenizer = _tokenizer(node)
                if tokenizer is None:
                    continue
                made = _counted(g.at(node), node, tokenizer)
                if isinstance(made, Reject):
                    reasons[f"{node.label}: {made.reason}"] = None
                    continue
                g.replace(node.outputs[0], made)
                g.discard(node)
                changes += 1
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
    if shape is None or len(shape) != (1 if is_flat else 2) or (not is_flat and shape[1] != 1):
        return None
    return source


def _counted(g: Any, node: Node, tokenizer: Node) -> Value | Reject:
    """What takes the place of the counts."""
    words, attrs = attribute_values(tokenizer), attribute_values(node)
    run = _RUN.fullmatch(words.get("tokenexp") or "")
    if run is None or words.get("separators") or words["mark"] or words["mincharnum"] < 1:
        return Reject("tokens that are not plain runs of characters")
    try:
        re.compile(f"[{run[1]}]")
    except re.error:
        return Reject("a class of characters that is none")
    pool, columns = attrs.get("pool_strings") or (), attrs["ngram_indexes"]
    single = attrs["min_gram_length"] <= 1 == attrs["max_gram_length"] and tuple(attrs["ngram_counts"]) == (0,)
    if not single or len(pool) != len(columns) or len(set(pool)) != len(pool) or words["pad_value"] in pool or not pool:
        return Reject("more than single tokens, or a pool that does not fit")
    if min(columns) < 0 or attrs["mode"] not in ("TF", "IDF", "TFIDF"):
        return Reject("columns or a mode that do not fit")
    given = attrs.get("weights")
    if given is not None and len(given) != len(pool):
        return Reject("weights that do not fit the pool")
    counts = g.op(
        "TokenCounts", tokenizer.inputs[0], domain="sardonyx", characters=run[1], least=words["mincharnum"], words=tuple(pool),
        columns=tuple(columns),
    )  # fmt: skip
    if attrs["mode"] == "IDF":
        counts = g.op("Min", counts, g.scalar(counts, 1.0))
    if attrs["mode"] == "TF":
        return counts  # type: ignore[no-any-return]
    weights = np.ones(max(columns) + 1, np.float32)
    for column, weight in zip(columns, given or ()):
        weights[column] = weight
    return g.op("Mul", counts, g.row(counts, weights))  # type: ignore[no-any-return]
