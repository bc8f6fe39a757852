"""Calls of every op with values for their operands: those in graphs of cases, and the samples listed here.

An op that no layer, loss or metric reaches must have a sample in `SAMPLES`; a test fails otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from netspec.backends.op_call import OpCall, call, numbers
from netspec.backends.reference.interpreter import interpret
from netspec.graph.fused import EpilogueFused, Fused, FusedStep, MultiTensor, PrologueFused
from netspec.graph.graph import Graph
from netspec.graph.layout import Layout
from netspec.graph.op import Op
from netspec.graph.ops import (
    all_gather,
    all_reduce,
    batch_normalization,
    collectives,
    elementwise,
    gradient_compression,
    linear,
    logic,
    random,
    reduce,
    reduce_scatter,
    send_recv,
    shape,
    special,
    unary,
)
from netspec.graph.ops.attention import Attention, AttentionBand, AttentionGrad
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvTranspose, ConvWeightGrad
from netspec.graph.ops.crop import CropAndFlip
from netspec.graph.ops.lrn import LRN
from netspec.graph.ops.source import Constant
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.tools.verification.cases import KINDS, SampleCase, all_forms, built, cases

MAX_CALLS = 3
CallsByOp: TypeAlias = dict[type[Op], tuple[list[OpCall], list[OpCall]]]
"""For each op, its samples and its calls in graphs of cases."""


_CONV = Conv(Window((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)))
_TRANSPOSED = ConvTranspose(_CONV, TensorType((2, 3, 5, 4), DType.FLOAT64))
_IMAGE, _KERNEL, _RESULT = numbers(2, 3, 5, 4), numbers(4, 3, 3, 3, offset=0.1), numbers(2, 4, 5, 4, offset=0.2)
_FULL = numbers(2, 32, 20, 20), numbers(32, 32, 3, 3, low=-0.2, high=0.2), numbers(2, 32, 20, 20, offset=0.2)
"""Operands and gradient of a convolution with channels that fill vectors, large enough for kernels that need this."""
_BIAS, _RELU = FusedStep(elementwise.Add(), (0, 1)), unary.Relu()

_WIDE, _CHANNELS = numbers(2, 3, 5, 4, offset=0.3), (numbers(3, low=0.5), numbers(3, offset=0.1))
_POSITIVE = (FusedStep(elementwise.Greater(), (0, 1)), FusedStep(elementwise.Where(), (3, 2, 1)))
"""The gradient of a ReLU: operand 2 where operand 0 is greater than operand 1, and operand 1 elsewhere."""

_ARRAYS = numbers(8, 5), numbers(20, offset=0.1)
_CUTS = (0, 16, 40, 40), (0, 0, 16, 20)

_BYTES = np.arange(180, dtype=np.uint8).reshape(3, 2, 5, 6)


def _attention(band: AttentionBand, q: np.ndarray, k: np.ndarray, v: np.ndarray, *mask: np.ndarray) -> Iterator[Any]:
    """Attention, and its gradient for the results of the forward op."""
    results = Attention(band).forward(np, q, k, v, *mask)
    yield Attention(band), (q, k, v, *mask)
    yield AttentionGrad(band), (q, k, v, *results, numbers(*results[0].shape, offset=0.6), *mask)


def _heads(positions: int, *sizes: int) -> np.ndarray:
    return numbers(2, positions, *sizes, low=-1, high=1, offset=0.1 * positions)


_ATTENTIONS = (
    *_attention(AttentionBand(), _heads(3, 2, 8), _heads(4, 2, 8), _heads(4, 2, 16)),
    *_attention(AttentionBand(causal=True, window=2), _heads(3, 2, 2, 8), _heads(4, 2, 8), _heads(5, 2, 8)[:, :4]),
    *_attention(AttentionBand(), _heads(3, 2, 8), _heads(4, 2, 8), _heads(4, 2, 8), numbers(2, 1, 4) > 0),
    *_attention(
        AttentionBand(causal=True),
        _heads(3, 8),
        _heads(4, 8),
        _heads(4, 8),
        (numbers(2, 3, 4) > 0) | np.eye(3, 4, dtype=bool),
    ),
)

_TRUE = np.array([[True, True, False, False]])

_ROWS, _COLUMNS = collectives.AxisPartition((0, 3, 5, 8), 1), collectives.AxisPartition((0, 2, 4, 6), 1)
"""Partitions of 8 rows and 6 columns over three workers. This worker, the second, has 2 rows and 2 columns, but
calls may have another number of rows."""
_EXCHANGES: tuple[tuple[Op, tuple[int, ...]], ...] = (
    *((collectives.AllGather(_ROWS), (size, 4)) for size in (1, 2, 3)),
    (collectives.AllGather(_COLUMNS, 2), (3, 2, 2)),
    *((collectives.ReduceScatter(_ROWS, 0, size), (8, 4)) for size in (1, 2, 3)),
    *((collectives.AllToAll(_ROWS, _COLUMNS, size), (size, 2, 6)) for size in (1, 2, 3)),
    *((collectives.AllToAll(_ROWS, _COLUMNS, size, inverse=True), (8, 2, 2)) for size in (1, 2, 3)),
)

SAMPLES: tuple[tuple[Op, tuple[np.ndarray, ...]], ...] = (
    (all_reduce.AllReduce(), (numbers(3, 4),)),
    (all_reduce.AllReduce(), (numbers(3, 4), numbers(5, offset=0.1))),
    (all_reduce.StartAllReduce(2), (numbers(3, 4), numbers(5, offset=0.1))),
    (all_gather.AllGatherRows(2, 4), (numbers(3, 4),)),
    (all_gather.StartAllGatherRows(2, 3), (numbers(3, 4), np.array(True))),
    (all_gather.JoinAllGatherRows(), (numbers(3, 4),)),
    (gradient_compression.OneBitQuantize(), (numbers(3, 4),)),
    (gradient_compression.OneBitQuantize(), (numbers(3, 2, 2),)),
    (gradient_compression.TopKSparsify(3), (numbers(3, 4),)),
    (all_reduce.AllReduce(deferred=True, encoding="in_full"), (numbers(3, 4),)),
    (all_reduce.StartAllReduce(1), (numbers(5, offset=0.1), np.array(True))),
    *((reduce_scatter.BucketReduceScatter(_CUTS, rank), _ARRAYS) for rank in (0, 1)),
    (reduce_scatter.StartBucketReduceScatter(_CUTS, 1), (*_ARRAYS, np.array(True))),
    (
        reduce_scatter.JoinBucketReduceScatter(_CUTS, 1),
        (_ARRAYS[0].reshape(-1)[16:], _ARRAYS[1][:16], np.array(True), *_ARRAYS),
    ),
    (reduce_scatter.BucketAllGather(_CUTS, 1), (numbers(24), numbers(16, offset=0.2), *_ARRAYS, np.array(True))),
    (all_reduce.JoinAllReduce(2), (numbers(3, 4), numbers(5, offset=0.1))),
    (all_reduce.JoinAllReduce(1), (numbers(3, 4),)),
    *((op, (numbers(*shape),)) for op, shape in _EXCHANGES),
    (random.GlobalSampleIndex(3), (np.array([1, 2, 7]),)),
    (collectives.AllGather(_ROWS), (numbers(3, 4), numbers(5, offset=0.1))),
    (send_recv.Send(1, 0), (numbers(3, 4), np.array(True))),
    (send_recv.WaitSends(((1, 0),)), (np.array(True), numbers(3, 4))),
    (send_recv.StartReceive(1, 0, TensorType((3, 4), DType.FLOAT64)), (np.array(True),)),
    (send_recv.JoinReceive(1, 0), (numbers(3, 4), np.array(True))),
    (send_recv.WithDependencies(), (numbers(3, 4), np.array(True))),
    *_ATTENTIONS,
    (logic.And(), (_TRUE, _TRUE[:, ::-1])),
    (logic.Or(), (_TRUE, _TRUE[:, ::-1])),
    (EpilogueFused(_CONV, 2, (_BIAS,)), (_IMAGE, _KERNEL, numbers(4, 1, 1))),
    (EpilogueFused(_CONV, 2, (_BIAS, FusedStep(_RELU, (2,)))), (*_FULL[:2], numbers(32, 1, 1))),
    (ConvInputGrad(_CONV, TensorType(_FULL[0].shape, DType.FLOAT64)), (_FULL[2], _FULL[1])),
    (ConvWeightGrad(_CONV, TensorType(_FULL[1].shape, DType.FLOAT64)), (_FULL[2], _FULL[0])),
    (EpilogueFused(_CONV, 2, (_BIAS, FusedStep(_RELU, (2,)))), (_IMAGE, _KERNEL, numbers(4, 1, 1))),
    (
        EpilogueFused(_CONV, 2, (_BIAS, FusedStep(elementwise.Add(), (2, 3)), FusedStep(_RELU, (4,)))),
        (_IMAGE, _KERNEL, numbers(4, 1, 1), _RESULT),
    ),
    (
        EpilogueFused(_CONV, 2, (FusedStep(elementwise.Sub(), (0, 1)), FusedStep(unary.Tanh(), (2,)))),
        (_IMAGE, _KERNEL, _RESULT),
    ),
    (
        EpilogueFused(_TRANSPOSED, 2, (_BIAS, FusedStep(_RELU, (2,)))),
        (_RESULT, numbers(4, 3, 3, 3, offset=0.1), numbers(3, 1, 1)),
    ),
    (
        EpilogueFused(linear.MatMul(), 2, (_BIAS, FusedStep(_RELU, (2,)))),
        (numbers(5, 3), numbers(3, 4, offset=0.1), numbers(4)),
    ),
    (
        EpilogueFused(linear.MatMul(), 2, (_BIAS, FusedStep(special.Gelu(), (2,)))),
        (numbers(5, 3), numbers(3, 4, offset=0.1), numbers(4)),
    ),
    (
        EpilogueFused(linear.MatMul(), 2, (_BIAS, FusedStep(elementwise.Mul(), (2, 2)), FusedStep(_RELU, (3,)))),
        (numbers(1, 7), numbers(7, 40, offset=0.1), numbers(40)),
    ),
    (
        EpilogueFused(
            linear.MatMul(transpose_b=True), 2, (FusedStep(elementwise.Mul(), (1, 0)), FusedStep(unary.Sigmoid(), (2,)))
        ),
        (numbers(2, 5, 3), numbers(2, 4, 3, offset=0.1), numbers(2, 5, 4)),
    ),
    (
        EpilogueFused(
            batch_normalization.BatchNormalizationTraining(),
            3,
            (FusedStep(elementwise.Add(), (0, 1)), FusedStep(_RELU, (2,))),
        ),
        (_IMAGE, *_CHANNELS, _WIDE),
    ),
    (
        EpilogueFused(
            batch_normalization.BatchNormalizationTraining(axis=2),
            3,
            (FusedStep(elementwise.Mul(), (0, 1)), FusedStep(elementwise.Sub(), (2, 3)), FusedStep(unary.Tanh(), (4,))),
        ),
        (numbers(4, 6, 3), *_CHANNELS, numbers(3, offset=0.2), np.array(0.5)),
    ),
    (
        PrologueFused(batch_normalization.BatchNormalizationGrad(), 4, 5, _POSITIVE),
        (_IMAGE, _CHANNELS[0], numbers(3), numbers(3, low=0.5), _WIDE, np.array(0.0), numbers(2, 3, 5, 4, offset=0.5)),
    ),
    (
        PrologueFused(
            batch_normalization.BatchNormalizationGrad(axis=2), 4, 5, (FusedStep(elementwise.Mul(), (0, 1)),)
        ),
        (numbers(8, 4, 3), _CHANNELS[0], numbers(3), numbers(3, low=0.5), numbers(8, 4, 3, offset=0.1), numbers(3)),
    ),
    (
        Fused(
            2,
            (FusedStep(elementwise.Mul(), (0, 1)), FusedStep(elementwise.Add(), (2, 1)), FusedStep(unary.Tanh(), (3,))),
            (4,),
        ),
        (numbers(2, 3), numbers(2, 3, offset=0.1)),
    ),
    (
        MultiTensor(Fused(3, (FusedStep(elementwise.Mul(), (1, 2)), FusedStep(elementwise.Add(), (0, 3))), (4, 3)), 2),
        (numbers(2, 3), numbers(2, 3, offset=0.1), np.array(0.5), numbers(4), numbers(4, offset=0.1), np.array(0.25)),
    ),
    (shape.Reorder(), (numbers(2, 3, 4, 5),)),
    (LRN(5, 0.1), (numbers(2, 32, 3, 2),)),
    (shape.Reorder(target=Layout.channels_last(4)), (numbers(2, 3, 4, 5),)),
    (shape.Reorder(target=Layout.channels_last(4)), (numbers(2, 40, 3, 13),)),
    (shape.Reorder(source=Layout.channels_last(4)), (numbers(1, 64, 3, 2),)),
    # libraries have kernels for multiples of 16 channels
    (batch_normalization.BatchNormalizationTraining(), (numbers(3, 16, 2, 3), numbers(16, low=0.5), numbers(16))),
    (
        batch_normalization.BatchNormalizationGrad(),
        (numbers(3, 16, 2, 3), *(numbers(16, low=0.5, offset=x) for x in (0.1, 0.2, 0.3)), numbers(3, 16, 2, 3)),
    ),
    (LRN(3, 0.3, 0.6, 2.0), (numbers(2, 3, 4),)),
    (CropAndFlip(4, 5, 9), (_BYTES, np.array([[-1, 2, 0, 0], [1, 0, 1, 1], [3, -2, 0, 1]], np.int32))),
    (CropAndFlip(5, 6), (_BYTES, np.array([[0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 1]], np.int32))),
    (unary.Sqrt(), (numbers(3, 2, low=0.5),)),
    (unary.Expm1(), (numbers(3, 2),)),
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


def _samples(dtype: DType) -> Iterator[OpCall]:
    for op, operands in SAMPLES:
        if dtype == DType.FLOAT64 or not isinstance(op, Constant):
            yield call(op, *(x.astype(str(dtype)) if x.dtype == np.float64 else x for x in operands))


@cache
def _calls_by_op(
    dtype: DType,
) -> tuple[dict[type[Op], tuple[list[OpCall], list[OpCall]]], list[tuple[SampleCase, bool]]]:
    """Return the samples of each op, and the first different calls in graphs of cases: at most `MAX_CALLS` together.

    Also returns the cases with these calls. Their graphs are alike in both precisions, so only these few are built in
    float32, with their second gradients.
    """
    forms = all_forms() if dtype == DType.FLOAT64 else _calls_by_op(DType.FLOAT64)[1]
    used: list[tuple[SampleCase, bool]] = []
    by_op: CallsByOp = {}
    for sample in _samples(dtype):
        by_op.setdefault(type(sample.op), ([], []))[0].append(sample)
    keys = {_key(sample.node) for samples, _ in by_op.values() for sample in samples}
    for case, training in forms:
        net = built(case, training, dtype)
        # The inference form has no gradient ops that the training form does not have.
        graph = net.graph(order=2 if net.builder.training else 0)
        new: dict[Node, None] = {}
        counts = Counter({op: len(samples) + len(of_cases) for op, (samples, of_cases) in by_op.items()})
        for node in graph.nodes():
            if _computes(node) and counts[type(node.op)] < MAX_CALLS and _key(node) not in keys:
                keys.add(_key(node))
                counts[type(node.op)] += 1
                new[node] = None
        for new_call in _evaluated(graph, new, net.feeds):
            by_op.setdefault(type(new_call.op), ([], []))[1].append(new_call)
        if new:
            used.append((case, training))
    return by_op, used


def _evaluated(graph: Graph, nodes: Collection[Node], feeds: Mapping[str, Any]) -> Iterator[OpCall]:
    """Yield the calls of some nodes of a graph, which is computed only if there are any."""
    if nodes:
        for node, operands, _ in interpret(graph, feeds):
            if node in nodes:
                yield call(node.op, *operands)


def quick_calls() -> Iterator[OpCall]:
    """A call of each op in float32: its first sample, or the first one in a training step of a class's first sample."""
    calls: dict[type[Op], OpCall] = {}
    for sample in _samples(DType.FLOAT32):
        calls.setdefault(type(sample.op), sample)
    for case in cases(*KINDS):
        if case.number == 0:
            net = built(case, True, DType.FLOAT32)
            graph = net.graph(order=1)
            firsts: dict[type[Op], Node] = {}
            for node in graph.nodes():
                if _computes(node) and type(node.op) not in calls:
                    firsts.setdefault(type(node.op), node)
            calls.update((type(each.op), each) for each in _evaluated(graph, firsts.values(), net.feeds))
    return (each for each in calls.values() if _has_kernels(each))


def _computes(node: Node) -> bool:
    return type(node.op).forward is not Op.forward


def _has_kernels(op_call: OpCall) -> bool:
    return not (op_call.op.traits.source or op_call.op.traits.view)


def _key(node: Node) -> tuple[Op, tuple[TensorType, ...]]:
    return node.op, tuple(value.type for value in node.inputs)


@cache
def calls(dtype: DType = DType.FLOAT64, most: int = MAX_CALLS) -> list[OpCall]:
    """The samples of each op, and the first different calls in graphs of cases, up to `most` calls in all."""
    of_ops = _calls_by_op(dtype)[0].values()
    return [each for samples, of_cases in of_ops for each in samples + of_cases[: max(most - len(samples), 0)]]


MAX_CALLS_BY_TYPE = {DType.FLOAT32: 2, DType.FLOAT64: 1}
"""Maximum number of calls of each op, in addition to its samples; in float64 the same code runs with another type."""


def all_calls() -> Iterator[OpCall]:
    """The calls that kernels are checked on, in both precisions."""
    for dtype, most in MAX_CALLS_BY_TYPE.items():
        for op_call in calls(dtype, most):
            if _has_kernels(op_call):
                yield op_call
