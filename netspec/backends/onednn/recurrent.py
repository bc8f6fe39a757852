"""Recurrent layers, a whole sequence a call: LSTM and GRU, forward and backward.

Memory is (T, N, C); weights are (L, D, C, gates, H) with L layers and D directions, biases (L, D, gates, H), states
(L, D, N, H). Gates of an LSTM: input, forget, candidate, output. Of a GRU: update, reset, candidate, where the new
state is u·h + (1−u)·candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

from netspec.backends.onednn.attributes import Attributes
from netspec.backends.onednn.constants import Direction, Propagation, forward
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc

NO_FLAGS = 0
"""Gradients of weights are added to what their memory holds."""


@dataclass(frozen=True)
class RecurrentDescs:
    """The memory of a recurrent layer, or of its gradients. A state that is None is zero, or is not wanted."""

    src_layer: MemoryDesc
    weights_layer: MemoryDesc
    weights_iter: MemoryDesc
    bias: MemoryDesc | None
    dst_layer: MemoryDesc
    src_iter: MemoryDesc | None = None
    dst_iter: MemoryDesc | None = None
    src_iter_c: MemoryDesc | None = None
    """The cell state of an LSTM before the sequence."""
    dst_iter_c: MemoryDesc | None = None
    """The cell state of an LSTM behind the sequence."""

    def of_lstm(self) -> tuple[MemoryDesc | None, ...]:
        """In the order of the LSTM's C functions; peephole and projection weights are none."""
        states = (self.src_iter, self.src_iter_c)
        weights = (self.weights_layer, self.weights_iter, None, None, self.bias)
        return (self.src_layer, *states, *weights, self.dst_layer, self.dst_iter, self.dst_iter_c)

    def of_gru(self) -> tuple[MemoryDesc | None, ...]:
        """In the order of the GRU's C functions."""
        weights = (self.weights_layer, self.weights_iter, self.bias)
        return (self.src_layer, self.src_iter, *weights, self.dst_layer, self.dst_iter)


def lstm_forward(
    descs: RecurrentDescs,
    direction: Direction = Direction.LEFT_TO_RIGHT,
    *,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """SRC_LAYER, WEIGHTS_…, BIAS, states → DST_LAYER, states; WORKSPACE in training."""
    arguments = (forward(training), direction, *descs.of_lstm(), NO_FLAGS)
    return PrimitiveDesc.make(descs.src_layer.engine, "lstm_forward", *arguments, attributes=attributes)


def lstm_backward(
    descs: RecurrentDescs,
    gradients: RecurrentDescs,
    hint: PrimitiveDesc,
    direction: Direction = Direction.LEFT_TO_RIGHT,
    *,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """All of forward's, WORKSPACE, DIFF_DST_… → DIFF_SRC_…, and added to DIFF_WEIGHTS_… and DIFF_BIAS."""
    arguments = (Propagation.BACKWARD, direction, *descs.of_lstm(), *gradients.of_lstm(), NO_FLAGS, hint)
    return PrimitiveDesc.make(descs.src_layer.engine, "lstm_backward", *arguments, attributes=attributes)


def gru_forward(
    descs: RecurrentDescs,
    direction: Direction = Direction.LEFT_TO_RIGHT,
    *,
    reset_after: bool = False,
    training: bool = True,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """As `lstm_forward`. `reset_after` (Keras's name): the reset gate is applied behind the recurrent product.

    Then the bias has a fourth gate: the candidate's in the recurrent product.
    """
    arguments = (forward(training), direction, *descs.of_gru(), NO_FLAGS)
    return PrimitiveDesc.make(descs.src_layer.engine, f"{_gru(reset_after)}_forward", *arguments, attributes=attributes)


def gru_backward(
    descs: RecurrentDescs,
    gradients: RecurrentDescs,
    hint: PrimitiveDesc,
    direction: Direction = Direction.LEFT_TO_RIGHT,
    *,
    reset_after: bool = False,
    attributes: Attributes | None = None,
) -> PrimitiveDesc:
    """As `lstm_backward`."""
    arguments = (Propagation.BACKWARD, direction, *descs.of_gru(), *gradients.of_gru(), NO_FLAGS, hint)
    kind = f"{_gru(reset_after)}_backward"
    return PrimitiveDesc.make(descs.src_layer.engine, kind, *arguments, attributes=attributes)


def _gru(reset_after: bool) -> str:
    return "lbr_gru" if reset_after else "gru"
