"""Softmax and its logarithm as arithmetic, with the largest number taken away before or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from netspec.exchange.onnx_import.patterns.finding import Pattern, patterns
from netspec.exchange.onnx_import.patterns.formula import Reduced, Variable, call
from netspec.exchange.onnx_import.patterns.matching import Match

x = Variable()


@patterns
def softmaxes() -> Sequence[Pattern]:
    """JAX has them so, and formulas that others wrote out."""
    return list(_softmaxes())


def _softmaxes() -> Iterator[Pattern]:
    for away in (x - Reduced("ReduceMax", x, "axes"), x):
        share = call("Exp", away)
        whole = Reduced("ReduceSum", share, "axes")
        yield Pattern("Softmax", share / whole, attributes=_axis)
        yield Pattern("LogSoftmax", away - call("Log", whole), attributes=_axis)
    yield Pattern("LogSoftmax", x - Reduced("ReduceLogSumExp", x, "axes"), attributes=_axis)


def _axis(found: Match) -> dict[str, Any] | None:
    axes = found.numbers["axes"]
    return {"axes": axes} if all(len(one) == 1 for one in axes) else None
