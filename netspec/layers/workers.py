"""What layers find of the whole batch, where several workers have a part of it each."""

from __future__ import annotations

from netspec.graph.ops.communication import WEIGHT, AllReduce
from netspec.graph.ops.elementwise import cast
from netspec.graph.types import TensorType
from netspec.graph.value import Value
from netspec.layers.base import Builder


def mean_over_workers(net: Builder, x: Value) -> Value:
    """The mean of all workers' x, each counting by its samples."""
    weight = cast(net.input(WEIGHT, TensorType((), net.dtype)), x.dtype)
    return AllReduce()(x * weight) / AllReduce()(weight)
