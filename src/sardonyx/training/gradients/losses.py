"""Gradients of the losses of classifiers, of elements and of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.dtypes import INT64
from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rows import of_logits
from sardonyx.training.gradients.rules import DOMAIN, Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]


@gradient("SoftmaxCrossEntropyLoss", stops=(1, 2))
def _cross_entropy(b: Backward) -> Results:
    """From the logarithms of the probabilities, which are the second output."""
    logarithms = Term(b, b.y(1), dtype_of(b.x()))
    found: list[Term] = []
    if b.gradients[0] is not None:
        probabilities = logarithms.apply("Exp")
        of_label = _label_factors(b) * (probabilities - 1).select(_is_label(b), probabilities)
        found.append(without_ignored(b, of_label, 1))
    if len(b.gradients) > 1 and b.gradients[1] is not None:
        found.append(of_logits(b, Term(b, b.dy(1), logarithms.dtype), logarithms, 1))
    return [(found[0] if len(found) == 1 else found[0] + found[1]).value]


@gradient("NegativeLogLikelihoodLoss", stops=(1, 2))
def _negative_log_likelihood(b: Backward) -> Results:
    return [(-_label_factors(b)).select(_is_label(b)).value]


@gradient("CTCLoss", domain=DOMAIN, stops=(1, 2, 3))
def _ctc(b: Backward) -> Results:
    """The second output, scaled: each sequence has a loss of its own."""
    return [b.Mul(b.y(1), b.Unsqueeze(b.dy(), b.ints(0, 2)))]


def _is_label(b: Backward) -> Value:
    """[N, C, ...]: whether a class is the label."""
    rank, classes = b.rank(b.x()), b.shape(b.x())[1]
    wide = b.Unsqueeze(b.Cast(b.x(1), to=INT64.onnx), b.ints(1))
    if isinstance(classes, int):
        numbers = b.g.constant(np.arange(classes).reshape(classes, *(1,) * (rank - 2)))
    else:
        count = b.Squeeze(b.sizes(b.x(), 1))
        line = b.Range(np.array(0, np.int64), count, np.array(1, np.int64))
        numbers = b.Unsqueeze(line, b.ints(*range(1, rank - 1))) if rank > 2 else line
    return b.Equal(wide, numbers)


def _ignored(b: Backward, labels: Value) -> Value | None:
    """Where the label is the one to ignore; None if there is no such."""
    ignore = b.node.attr("ignore_index")
    return None if ignore is None else b.Equal(labels, np.array(ignore, dtype_of(labels).numpy))


def without_ignored(b: Backward, term: Term, *axes: int) -> Term:
    """Zeros where the label is ignored, whatever stands there: nothing times 0 need be 0. `axes` are those that labels lack."""
    ignored = _ignored(b, b.x(1))
    if ignored is None:
        return term
    counts = b.Not(ignored)
    return term.select(b.Unsqueeze(counts, b.ints(*axes)) if axes else counts)


def labels_without_ignored(b: Backward, labels: Value) -> Value:
    """Labels with 0 for those to ignore, as 64-bit integers."""
    ignored = _ignored(b, labels)
    if ignored is not None:
        labels = b.Where(ignored, np.zeros((), dtype_of(labels).numpy), labels)
    return b.Cast(labels, to=INT64.onnx)


def label_weights(b: Backward) -> Term:
    """How much each label counts; 0 where it is ignored."""
    labels, dtype = b.x(1), dtype_of(b.x())
    ignored = _ignored(b, labels)
    if b.has(2):
        weights = b.Gather(b.x(2), labels_without_ignored(b, labels), axis=0)
    else:
        weights = b.ConstantOfShape(b.Shape(labels), value=np.ones(1, dtype.numpy))
    if ignored is not None:
        weights = b.Where(ignored, np.zeros((), dtype.numpy), weights)
    return Term(b, weights, dtype)


def _label_factors(b: Backward) -> Term:
    """[N, 1, ...]: for each label the gradient of minus the logarithm of its probability; 0 where it is ignored."""
    weights = label_weights(b)
    scaled = weights * b.d()
    if b.attr("reduction") == "mean":
        scaled = scaled / weights.apply("ReduceSum", keepdims=0)
    return scaled.apply("Unsqueeze", b.ints(1))
