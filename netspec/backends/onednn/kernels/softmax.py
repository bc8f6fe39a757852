"""Softmax of short vectors, along the last axis. Of longer ones, and of its logarithm, others make as much or more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, desc, why_slow
from netspec.backends.onednn.normalization import softmax_forward
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Signature
from netspec.graph.ops.softmax import Softmax
from netspec.graph.types import TensorType
from netspec.graph.value import Node

LONGEST = 128
"""Elements along the axis: of longer vectors numba's is the faster one."""


@kernel(Softmax, backend="onednn", rank=6)
class ShortSoftmax(OneDnnKernel):
    """eˣ / Σ eˣ of short vectors."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if op.axis % x.rank != x.rank - 1:
            return "oneDNN has only slow code for vectors whose elements do not lie side by side"
        if x.shape[-1] > LONGEST:
            return f"oneDNN's is the slower one for vectors of {x.shape[-1]}"
        return why_slow(lambda: self._primitive(x))

    def _primitive(self, x: TensorType) -> PrimitiveDesc:
        lies = desc(x, PLAIN)
        return softmax_forward(lies, lies, x.rank - 1)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        lies = desc(node.inputs[0].type, PLAIN)
        places: dict[int, Place] = {Arg.SRC: Place(0, lies), Arg.DST: Place(0, lies, output=True)}
        return Computation(self._primitive(node.inputs[0].type), places)
