"""CTC: connectionist temporal classification, for labels without known positions in a sequence."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.ctc import CTCLoss
from netspec.graph.ops.elementwise import cast, scalar
from netspec.graph.ops.reduce import Broadcast, ReduceSum, reshape_to
from netspec.graph.ops.softmax import LogSoftmax
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses_and_metrics import ElementLosses, LossSpec, PredictionKind
from netspec.layers.targets import mask_ignored
from netspec.schema.specs.kinds import LOSSES


@LOSSES.register
class CTC(LossSpec):
    """Mean of -ln of the probability of a label sequence, summed over all alignments with a longer sequence of frames.

    Prediction (N, T, C): scores before the softmax at each of T frames. Target (N, L): class indices, `mask_index`
    after the end of the labels. `from` may also name the numbers of frames and of labels of each sample, (N); otherwise
    frames masked in the prediction are left out. Infinite if a sample has too few frames. Graves et al. 2006.
    """

    type: Literal["CTC"] = "CTC"
    prediction_kind: ClassVar[PredictionKind] = "frames"
    mask_index: int = Field(default=0, ge=0)
    """Class index of the blank between labels; it also pads shorter targets."""

    samples: ClassVar = (
        Sample.of((3, 5, 4), (3, 2), dtypes=("float32", "int32")),
        Sample.of((2, 4, 4), (2, 1), dtypes=("float32", "int64"), high=3, mask_index=3, masks=((2, 4),), weight=(2,)),
        Sample.of((2, 4, 3), (2, 1), (2,), (2,), dtypes=("float32", "int32", "int32", "int32"), high=2),
    )

    def build(
        self,
        builder: Builder,
        prediction: Value,
        target: Value,
        frames: Value | None = None,
        lengths: Value | None = None,
    ) -> Value:
        """prediction: (N, T, C), target: (N, L), frames, lengths: (N) → scalar."""
        rank = len(prediction.shape)
        require(
            rank == 3,
            "the prediction is not a sequence of scores",
            expected="(batch, time, classes)",
            got=prediction.type,
        )
        batch, steps, count = prediction.shape
        require(
            self.mask_index < count,
            f"`mask_index` is out of range: the prediction has {count} classes",
            expected=f"0 to {count - 1}",
            got=self.mask_index,
        )
        fits = len(target.shape) == 2 and not target.dtype.is_float
        expected = "int32 (batch, labels), an input with one axis and `dtype: int32`"
        require(fits, "the target is not a sequence of class indices", expected=expected, got=target.type)
        builder.require_range(target, 0, count, f"each frame has scores of {count} classes")
        if frames is None:
            mask = builder.mask()
            full = Broadcast((batch,))(scalar(steps, DType.INT64))
            frames = full if mask is None else ReduceSum((1,))(cast(mask, DType.INT64))
        if lengths is None:
            _, labeled = mask_ignored(target, self.mask_index)
            assert labeled is not None
            lengths = ReduceSum((1,))(cast(labeled, DType.INT64))
        frames = self._lengths(builder, frames, batch, steps, "frames")
        lengths = self._lengths(builder, lengths, batch, target.shape[1], "labels")
        log_prob = LogSoftmax(2)(builder.floating(prediction))
        losses = CTCLoss(self.mask_index)(log_prob, target, frames, lengths)
        return self.reduce(builder, ElementLosses(losses, uses_prediction_mask=False))

    def _lengths(self, builder: Builder, x: Value, batch: int, maximum: int, noun: str) -> Value:
        fits = not x.dtype.is_float and x.shape in ((batch,), (batch, 1))
        expected = "int32 (batch), an input with `shape: []` and `dtype: int32`"
        require(fits, f"the number of {noun} must be one integer per sample", expected=expected, got=x.type)
        builder.require_range(x, 0, maximum + 1, f"there are {maximum} {noun}")
        return reshape_to(x, (batch,))
