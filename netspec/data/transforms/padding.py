"""`{type: Padding}`: gives sequences the same length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import PositiveInt

from netspec.data.base import FieldType, SampleKeys, Samples, Transform
from netspec.errors import InputError
from netspec.schema.specs.data import TRANSFORMS


@TRANSFORMS.register
class Padding(Transform):
    """Give sequences one length, as Keras's `pad_sequences`: pad short ones, truncate long ones.

    Texts become `[length]`, sounds `[channels, length]`, spectrograms `[channels, bins, length]`. Embedding's
    `mask_zero` masks padded tokens if the tokenizer reserves 0 for them (`padding: true`); Masking masks any
    `mask_value`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "maxlen": "`maxlen` is Keras's name: use `length`",
        "output_sequence_length": "`output_sequence_length` is Keras's name: use `length`",
        "max_length": "use `length`",
        "side": "use `padding`: `pre` or `post`",
    }
    changes: ClassVar[str] = "a field whose samples differ in size"

    type: Literal["Padding"] = "Padding"
    length: PositiveInt
    """Length of the axis afterwards."""
    value: float = 0.0
    """The value that pads short sequences."""
    padding: Literal["pre", "post"] = "post"
    """Side on which short sequences are padded: before the first value or after the last."""
    truncating: Literal["pre", "post", "random"] = "post"
    """The part of long sequences that is removed: the beginning (`pre`), the end (`post`), or both, so that a random
    part remains, another one in every epoch (`random`)."""
    axis: int = -1
    """The axis of a sample, counted from 0; -1 is the last one."""

    samples: ClassVar = (
        {"length": 16000, "truncating": "random"},
        {"length": 30, "padding": "pre", "value": 1.0},
    )
    example_split: ClassVar = {"source": "audio", "path": "commands/train", "sampling_rate": 16000, "batch_size": 64}

    def accepts(self, field: FieldType) -> bool:
        """Accept fields whose samples differ in size."""
        return field.ragged

    def infer(self, field: FieldType) -> FieldType:
        """(…, L, …) → (…, length, …), where L may differ. Raises `InputError` if there is no such axis."""
        if not -len(field.shape) <= self.axis < len(field.shape):
            raise InputError(
                f"a sample has no axis {self.axis}",
                location=self.where("axis"),
                path="axis",
                expected="samples that are not single numbers" if not field.shape else f"0 to {len(field.shape) - 1}",
                got=f"samples of {field}",
            )
        if not field.dtype.startswith("float") and not self.value.is_integer():
            raise InputError(
                f"samples of {field.dtype} cannot be padded with {self.value}",
                location=self.where("value"),
                path="value",
                expected="an integer",
            )
        axis = self.axis % len(field.shape)
        return FieldType((*field.shape[:axis], self.length, *field.shape[axis + 1 :]), field.dtype)

    def for_evaluation(self, fields: Mapping[str, FieldType]) -> Transform:
        """Return the transform with the beginning of long sequences instead of a random part."""
        return self.model_copy(update={"truncating": "post"}) if self.truncating == "random" else self

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """N sequences → (N, …, length, …); a list if they still differ in another axis."""
        import numpy as np

        positions = (
            keys.uniform(1)[:, 0] if self.truncating == "random" else np.full(len(batch), self.truncating == "pre")
        )
        padded = []
        for sample, position in zip(batch, positions, strict=True):
            axis = self.axis % sample.ndim
            size = sample.shape[axis]
            first = int(position * (size - self.length + (self.truncating == "random"))) if size > self.length else 0
            truncated = sample[(slice(None),) * axis + (slice(first, first + self.length),)]
            free = self.length - truncated.shape[axis]
            around = [(0, 0)] * sample.ndim
            around[axis] = (free, 0) if self.padding == "pre" else (0, free)
            padded.append(np.pad(truncated, around, constant_values=self.value) if free else truncated)
        return np.stack(padded) if len({sequence.shape for sequence in padded}) == 1 else padded
