"""Calls of every op with values for their operands: those that the cases make, and the samples listed here.

An op that no layer, loss or metric reaches must have a sample in `SAMPLES`; a test fails otherwise.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import netspec
from netspec.graph.fused import Anchored, Fed, ForEach, Fused, Step
from netspec.graph.layout import Layout
from netspec.graph.op import Op
from netspec.graph.ops import (
    communication,
    elementwise,
    exchange,
    functions,
    gathering,
    linear,
    logic,
    messages,
    normalization,
    quantize,
    random,
    reduce,
    scattering,
    shape,
    special,
)
from netspec.graph.ops.attention import Attention, AttentionGrad, Band
from netspec.graph.ops.cropping import CropAndFlip
from netspec.graph.ops.source import Constant, Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Value
from netspec.layers.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.layers.local_response import LRN
from netspec.layers.transposed import ConvTranspose
from netspec.layers.window import Window
from tests.interpret import environment
from tests.registry.cases import all_built, generator, spread

IN_PACKAGES = ("graph", "layers", "passes", "solvers")


@dataclass(frozen=True, eq=False)
class Call:
    """An op applied to inputs of the graph, and values for them."""

    node: Node
    operands: tuple[np.ndarray, ...]

    @property
    def op(self) -> Op:
        return self.node.op

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """The operands by the names of the inputs."""
        return {value.op.label: array for value, array in zip(self.node.inputs, self.operands, strict=True)}  # type: ignore[attr-defined]  # all are inputs


def call(op: Op, *operands: Any) -> Call:
    """`op` applied to these arrays."""
    arrays = tuple(map(np.asarray, operands))
    inputs = [Input(f"x{i}", TensorType(x.shape, DType(str(x.dtype))))() for i, x in enumerate(arrays)]
    return Call(op.many(*inputs)[0].node, arrays)


def numbers(*sizes: int, low: float = -2.0, high: float = 2.0, offset: float = 0.37) -> np.ndarray:
    return spread(generator(f"{sizes}{offset}"), sizes, low, high, offset)


_CONV = Conv(Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))
_TRANSPOSED = ConvTranspose(_CONV, TensorType((2, 3, 5, 4), DType.FLOAT64))
_IMAGE, _KERNEL, _RESULT = numbers(2, 3, 5, 4), numbers(4, 3, 3, 3, offset=0.1), numbers(2, 4, 5, 4, offset=0.2)
_FULL = numbers(2, 32, 20, 20), numbers(32, 32, 3, 3, low=-0.2, high=0.2), numbers(2, 32, 20, 20, offset=0.2)
"""Operands and gradient of a convolution whose channels fill vectors, and that is large enough for kernels for such."""
_BIAS, _RELU = Step(elementwise.Add(), (0, 1)), functions.Relu()

_WIDE, _CHANNELS = numbers(2, 3, 5, 4, offset=0.3), (numbers(3, low=0.5), numbers(3, offset=0.1))
_POSITIVE = (Step(elementwise.Greater(), (0, 1)), Step(elementwise.Where(), (3, 2, 1)))
"""Operand 2 where operand 0 is greater than operand 1, which it is elsewhere: the gradient of a ReLU."""

_ARRAYS = numbers(8, 5), numbers(20, offset=0.1)
_CUTS = (0, 16, 40, 40), (0, 0, 16, 20)

_BYTES = np.arange(180, dtype=np.uint8).reshape(3, 2, 5, 6)


def _attention(band: Band, q: np.ndarray, k: np.ndarray, v: np.ndarray, *mask: np.ndarray) -> Iterator[Any]:
    """It, and its gradient of the results that it has."""
    results = Attention(band).forward(np, q, k, v, *mask)
    yield Attention(band), (q, k, v, *mask)
    yield AttentionGrad(band), (q, k, v, *results, numbers(*results[0].shape, offset=0.6), *mask)


def _heads(places: int, *sizes: int) -> np.ndarray:
    return numbers(2, places, *sizes, low=-1, high=1, offset=0.1 * places)


_ATTENTIONS = (
    *_attention(Band(), _heads(3, 2, 8), _heads(4, 2, 8), _heads(4, 2, 16)),
    *_attention(Band(causal=True, window=2), _heads(3, 2, 2, 8), _heads(4, 2, 8), _heads(5, 2, 8)[:, :4]),
    *_attention(Band(), _heads(3, 2, 8), _heads(4, 2, 8), _heads(4, 2, 8), numbers(2, 1, 4) > 0),
    *_attention(
        Band(causal=True), _heads(3, 8), _heads(4, 8), _heads(4, 8), (numbers(2, 3, 4) > 0) | np.eye(3, 4, dtype=bool)
    ),
)

_TRUE = np.array([[True, True, False, False]])

_ROWS, _COLUMNS = exchange.Parts((0, 3, 5, 8), 1), exchange.Parts((0, 2, 4, 6), 1)
"""Of this worker 2 rows of 8, and 2 columns of 6; it may have other rows than it should."""
_EXCHANGES: tuple[tuple[Op, tuple[int, ...]], ...] = (
    *((exchange.AllGather(_ROWS), (size, 4)) for size in (1, 2, 3)),
    (exchange.AllGather(_COLUMNS, 2), (3, 2, 2)),
    *((exchange.ReduceScatter(_ROWS, 0, size), (8, 4)) for size in (1, 2, 3)),
    *((exchange.AllToAll(_ROWS, _COLUMNS, size), (size, 2, 6)) for size in (1, 2, 3)),
    *((exchange.AllToAll(_ROWS, _COLUMNS, size, back=True), (8, 2, 2)) for size in (1, 2, 3)),
)

SAMPLES: tuple[tuple[Op, tuple[np.ndarray, ...]], ...] = (
    (communication.AllReduce(), (numbers(3, 4),)),
    (communication.AllReduce(), (numbers(3, 4), numbers(5, offset=0.1))),
    (communication.StartAllReduce(2), (numbers(3, 4), numbers(5, offset=0.1))),
    (gathering.GatherRows(2, 4), (numbers(3, 4),)),
    (gathering.StartGatherRows(2, 3), (numbers(3, 4), np.array(True))),
    (gathering.JoinGatherRows(), (numbers(3, 4),)),
    (quantize.OneBit(), (numbers(3, 4),)),
    (quantize.OneBit(), (numbers(3, 2, 2),)),
    (quantize.Largest(3), (numbers(3, 4),)),
    (communication.AllReduce(late=True, encoding="in_full"), (numbers(3, 4),)),
    (communication.StartAllReduce(1), (numbers(5, offset=0.1), np.array(True))),
    *((scattering.ScatterSums(_CUTS, rank), _ARRAYS) for rank in (0, 1)),
    (scattering.StartScatterSums(_CUTS, 1), (*_ARRAYS, np.array(True))),
    (scattering.JoinScatterSums(_CUTS, 1), (_ARRAYS[0].reshape(-1)[16:], _ARRAYS[1][:16], np.array(True), *_ARRAYS)),
    (scattering.GatherPieces(_CUTS, 1), (numbers(24), numbers(16, offset=0.2), *_ARRAYS, np.array(True))),
    (communication.JoinAllReduce(2), (numbers(3, 4), numbers(5, offset=0.1))),
    (communication.JoinAllReduce(1), (numbers(3, 4),)),
    *((op, (numbers(*shape),)) for op, shape in _EXCHANGES),
    (random.FirstOfAll(3), (np.array([1, 2, 7]),)),
    (exchange.AllGather(_ROWS), (numbers(3, 4), numbers(5, offset=0.1))),
    (messages.Send(1, 0), (numbers(3, 4), np.array(True))),
    (messages.Sent(((1, 0),)), (np.array(True), numbers(3, 4))),
    (messages.StartReceive(1, 0, TensorType((3, 4), DType.FLOAT64)), (np.array(True),)),
    (messages.JoinReceive(1, 0), (numbers(3, 4), np.array(True))),
    (messages.After(), (numbers(3, 4), np.array(True))),
    *_ATTENTIONS,
    (logic.And(), (_TRUE, _TRUE[:, ::-1])),
    (logic.Or(), (_TRUE, _TRUE[:, ::-1])),
    (Anchored(_CONV, 2, (_BIAS,)), (_IMAGE, _KERNEL, numbers(4, 1, 1))),
    (Anchored(_CONV, 2, (_BIAS, Step(_RELU, (2,)))), (*_FULL[:2], numbers(32, 1, 1))),
    (ConvInputGrad(_CONV, TensorType(_FULL[0].shape, DType.FLOAT64)), (_FULL[2], _FULL[1])),
    (ConvWeightGrad(_CONV, TensorType(_FULL[1].shape, DType.FLOAT64)), (_FULL[2], _FULL[0])),
    (Anchored(_CONV, 2, (_BIAS, Step(_RELU, (2,)))), (_IMAGE, _KERNEL, numbers(4, 1, 1))),
    (
        Anchored(_CONV, 2, (_BIAS, Step(elementwise.Add(), (2, 3)), Step(_RELU, (4,)))),
        (_IMAGE, _KERNEL, numbers(4, 1, 1), _RESULT),
    ),
    (Anchored(_CONV, 2, (Step(elementwise.Sub(), (0, 1)), Step(functions.Tanh(), (2,)))), (_IMAGE, _KERNEL, _RESULT)),
    (
        Anchored(_TRANSPOSED, 2, (_BIAS, Step(_RELU, (2,)))),
        (_RESULT, numbers(4, 3, 3, 3, offset=0.1), numbers(3, 1, 1)),
    ),
    (
        Anchored(linear.MatMul(), 2, (_BIAS, Step(_RELU, (2,)))),
        (numbers(5, 3), numbers(3, 4, offset=0.1), numbers(4)),
    ),
    (
        Anchored(linear.MatMul(), 2, (_BIAS, Step(special.Gelu(), (2,)))),
        (numbers(5, 3), numbers(3, 4, offset=0.1), numbers(4)),
    ),
    (
        Anchored(linear.MatMul(), 2, (_BIAS, Step(elementwise.Mul(), (2, 2)), Step(_RELU, (3,)))),
        (numbers(1, 7), numbers(7, 40, offset=0.1), numbers(40)),
    ),
    (
        Anchored(
            linear.MatMul(transpose_b=True), 2, (Step(elementwise.Mul(), (1, 0)), Step(functions.Sigmoid(), (2,)))
        ),
        (numbers(2, 5, 3), numbers(2, 4, 3, offset=0.1), numbers(2, 5, 4)),
    ),
    (
        Anchored(normalization.BatchNormalizationTraining(), 3, (Step(elementwise.Add(), (0, 1)), Step(_RELU, (2,)))),
        (_IMAGE, *_CHANNELS, _WIDE),
    ),
    (
        Anchored(
            normalization.BatchNormalizationTraining(axis=2),
            3,
            (Step(elementwise.Mul(), (0, 1)), Step(elementwise.Sub(), (2, 3)), Step(functions.Tanh(), (4,))),
        ),
        (numbers(4, 6, 3), *_CHANNELS, numbers(3, offset=0.2), np.array(0.5)),
    ),
    (
        Fed(normalization.BatchNormalizationGrad(), 4, 5, _POSITIVE),
        (_IMAGE, _CHANNELS[0], numbers(3), numbers(3, low=0.5), _WIDE, np.array(0.0), numbers(2, 3, 5, 4, offset=0.5)),
    ),
    (
        Fed(normalization.BatchNormalizationGrad(axis=2), 4, 5, (Step(elementwise.Mul(), (0, 1)),)),
        (numbers(8, 4, 3), _CHANNELS[0], numbers(3), numbers(3, low=0.5), numbers(8, 4, 3, offset=0.1), numbers(3)),
    ),
    (
        Fused(
            2, (Step(elementwise.Mul(), (0, 1)), Step(elementwise.Add(), (2, 1)), Step(functions.Tanh(), (3,))), (4,)
        ),
        (numbers(2, 3), numbers(2, 3, offset=0.1)),
    ),
    (
        ForEach(Fused(3, (Step(elementwise.Mul(), (1, 2)), Step(elementwise.Add(), (0, 3))), (4, 3)), 2),
        (numbers(2, 3), numbers(2, 3, offset=0.1), np.array(0.5), numbers(4), numbers(4, offset=0.1), np.array(0.25)),
    ),
    (shape.Reorder(), (numbers(2, 3, 4, 5),)),
    (LRN(5, 0.1), (numbers(2, 32, 3, 2),)),
    (shape.Reorder(target=Layout.channels_last(4)), (numbers(2, 3, 4, 5),)),
    (shape.Reorder(target=Layout.channels_last(4)), (numbers(2, 40, 3, 13),)),
    (shape.Reorder(source=Layout.channels_last(4)), (numbers(1, 64, 3, 2),)),
    # Vectors of 16 channels are what libraries have code for.
    (normalization.BatchNormalizationTraining(), (numbers(3, 16, 2, 3), numbers(16, low=0.5), numbers(16))),
    (
        normalization.BatchNormalizationGrad(),
        (numbers(3, 16, 2, 3), *(numbers(16, low=0.5, offset=x) for x in (0.1, 0.2, 0.3)), numbers(3, 16, 2, 3)),
    ),
    (LRN(3, 0.3, 0.6, 2.0), (numbers(2, 3, 4),)),
    (CropAndFlip(4, 5, 9), (_BYTES, np.array([[-1, 2, 0, 0], [1, 0, 1, 1], [3, -2, 0, 1]], np.int32))),
    (CropAndFlip(5, 6), (_BYTES, np.array([[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 1]], np.int32))),
    (functions.Sqrt(), (numbers(3, 2, low=0.5),)),
    (functions.Expm1(), (numbers(3, 2),)),
    (elementwise.Neg(), (numbers(3, 2),)),
    (elementwise.Div(), (numbers(2, 3), numbers(1, 3, low=1.0))),
    (elementwise.Maximum(), (numbers(2, 3), numbers(3, offset=0.5))),
    (elementwise.Minimum(), (numbers(2, 3), numbers(2, 1, offset=0.5))),
    (elementwise.Pow(3.0), (numbers(2, 3),)),
    (elementwise.LessOrEqual(), (numbers(2, 3), numbers(2, 3, offset=0.5))),
    (elementwise.Where(), (numbers(2, 1) > 0, numbers(2, 3), numbers(3, offset=0.5))),
    (reduce.ReduceMax((1,)), (numbers(3, 4),)),
    (reduce.ReduceMax(keepdims=True), (numbers(3, 4),)),
    (reduce.ReduceMean((0, -1)), (numbers(2, 3, 2),)),
    (reduce.ReduceSum((-1,), keepdims=True), (numbers(2, 3),)),
    (shape.Identity(), (numbers(2, 3),)),
    (shape.Transpose((2, 0, 1)), (numbers(2, 3, 4),)),
    (shape.PadAxis(1, 2, 1), (numbers(2, 3),)),
    (shape.Slice(1, 1, 3), (numbers(2, 4),)),
    (Constant(np.arange(3.0).tobytes(), TensorType((3,), DType.FLOAT64)), ()),
)


def op_classes() -> list[type[Op]]:
    """Every op there is: the subclasses of `Op` in all modules, without the bases that compute nothing."""
    for package in IN_PACKAGES:
        root = importlib.import_module(f"{netspec.__name__}.{package}")
        for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            importlib.import_module(module.name)
    computing = [cls for cls in _below(Op) if cls.forward is not Op.forward and not inspect.isabstract(cls)]
    return [cls for cls in computing if cls.__module__.startswith("netspec.")]


def _below(cls: type[Op]) -> Iterator[type[Op]]:
    for below in cls.__subclasses__():
        yield below
        yield from _below(below)


@cache
def calls(dtype: DType = DType.FLOAT64, most: int = 3) -> list[Call]:
    """The samples, and of each op the first `most` different calls that the cases make."""
    found: dict[type[Op], dict[Any, Call]] = {}
    for op, operands in SAMPLES:
        if dtype != DType.FLOAT64 and isinstance(op, Constant):
            continue
        made = call(op, *(x.astype(str(dtype)) if x.dtype == np.float64 else x for x in operands))
        found.setdefault(type(op), {})[op, made.node.types] = made
    for one in all_built(dtype):
        graph = one.graph()
        values: dict[Value, Any] = {}  # computed where a call is new: most are not
        for node in graph.nodes():
            kept = found.setdefault(type(node.op), {})
            key = node.op, tuple(value.type for value in node.inputs)
            if key not in kept and len(kept) < most and hasattr(node.op, "forward") and not isinstance(node.op, Input):
                values = values or environment(graph.roots(), one.feeds)
                kept[key] = call(node.op, *(values[value] for value in node.inputs))
    known = set(op_classes())
    return [one for cls, kept in found.items() if cls in known for one in kept.values()]


def name(one: Call) -> str:
    return f"{one.op.name}-{'-'.join('x'.join(map(str, value.shape)) or 'scalar' for value in one.node.inputs)}"
