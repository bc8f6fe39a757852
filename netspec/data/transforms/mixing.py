"""`{type: MixUp}` and `{type: CutMix}`: mix each sample of a batch, and its label, with another sample of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from netspec.data.base import Array, DamagedSamples, FieldType, SampleKeys, Samples, Transform
from netspec.data.transforms.encoding import CategoryEncoding, check_range, encoded
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import TRANSFORMS

Positive = Annotated[float, Field(gt=0)]


class Mixing(Transform):
    """Base of transforms that mix samples: partners, weights and labels.

    Sample i of a batch is mixed with sample p(i), where p is a random permutation of the batch, with a weight λ
     Beta(α, α) drawn for each sample. Labels become class probabilities, λ · label(i) + (1 − λ) · label(p(i)).
    """

    mixes: ClassVar[bool] = True
    random: ClassVar[bool] = True

    num_classes: int | None = Field(default=None, ge=2)
    """Number of classes if labels are integers; by default that of the source. Not needed for labels that are
    probabilities already (of CategoryEncoding, or of another mixing before)."""
    label: str = "label"
    """The field of the labels."""

    alpha: Positive

    @property
    def needs_classes(self) -> bool:
        """Whether the number of classes must come from the source."""
        return self.num_classes is None

    def with_classes(self, classes: Mapping[str, Sequence[str]]) -> Self:
        """Return the transform with as many classes as the source names for the label."""
        names = classes.get(self.label) if self.needs_classes else None
        return self if names is None else self.model_copy(update={"num_classes": len(names)})

    def for_evaluation(self, fields: Mapping[str, FieldType]) -> Transform | None:
        """Return the encoding of unmixed labels as class probabilities, if they are not encoded yet."""
        label = fields.get(self.label)
        return CategoryEncoding(apply_to=self.label, num_tokens=self.num_classes) if label and not label.shape else None

    def infer_fields(self, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
        """Image: any fixed shape. Label: () of integers, or (classes,) of floats → (classes,) of float32."""
        assert self.apply_to is not None  # set by the pipeline
        mixed, label = fields[self.apply_to], fields.get(self.label)
        problems: list[Problem] = []
        if mixed.ragged:
            hint = "put a transform that gives all samples one size, such as Resizing, before this one"
            problems.append(Problem("samples that differ in size cannot be mixed", got=str(mixed), hint=hint))
        if label is None:
            raise InputError([*problems, self.missing_field_problem("label", self.label, fields)])
        is_class_index = not label.shape and not label.dtype.startswith("float")
        if is_class_index and self.num_classes is None:
            problems.append(
                Problem("the number of classes is missing", expected=f"`num_classes`, since `{self.label}` is {label}")
            )
        elif not is_class_index and (
            len(label.shape) != 1 or not label.dtype.startswith("float") or self._has_other_classes(label)
        ):
            classes = "" if self.num_classes is None else f" of {self.num_classes}"
            expected = f"a class number, or the probabilities{classes}"
            problems.append(Problem(f"`{self.label}` cannot be mixed as a label", expected=expected, got=str(label)))
        if problems:
            raise InputError(problems)
        kind = FieldType(label.shape or (self.num_classes,), "float32")
        return {**fields, self.apply_to: self.infer(mixed), self.label: kind}

    def _has_other_classes(self, label: FieldType) -> bool:
        return self.num_classes is not None and label.shape[0] != self.num_classes

    def check_fields(self, batch: Mapping[str, Samples]) -> None:
        """Raise `RejectedSamples` for labels out of range and non-finite values, which partners would receive."""
        import numpy as np

        assert self.apply_to is not None
        labels = np.asarray(batch[self.label])
        if labels.ndim == 1:
            check_range(self.label, labels, self.num_classes or 0)
        damaged: dict[int, list[Problem]] = {}
        values = np.asarray(batch[self.apply_to])
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            for row in np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1)):
                expected = "finite values, since they are mixed into other samples"
                problem = Problem(f"a value of `{self.apply_to}` is not finite", expected=expected, got="one")
                damaged[int(row)] = [problem]
        if damaged:
            raise DamagedSamples(damaged)

    def apply_fields(self, batch: Mapping[str, Samples], keys: SampleKeys) -> dict[str, Samples]:
        """x: (N, …), label: (N,) or (N, classes) → x: (N, …), label: (N, classes) of float32."""
        import numpy as np

        assert self.apply_to is not None
        drawn = keys.uniform(7)
        partner = np.argsort(drawn[:, 0], kind="stable")
        values, labels = np.asarray(batch[self.apply_to]), np.asarray(batch[self.label])
        if labels.ndim == 1:
            labels = encoded(labels, self.num_classes or 0)
        mixed, weight = self.mixed(values, partner, symmetric_beta(self.alpha, drawn[:, 1:5]), drawn[:, 5:])
        weight = weight.astype(np.float32)[:, None]
        return {**batch, self.apply_to: mixed, self.label: weight * labels + (1 - weight) * labels[partner]}

    @abstractmethod
    def mixed(self, values: Array, partner: Array, weight: Array, drawn: Array) -> tuple[Array, Array]:
        """Return the mixed values, and the weight (N,) of each sample's own label; drawn: (N, 2) in [0, 1)."""


@TRANSFORMS.register
class MixUp(Mixing):
    """Mix values and labels: y = λ · x(i) + (1 − λ) · x(p(i)) for sample i and its partner p(i) in the batch.

    As in "mixup: Beyond Empirical Risk Minimization" (arXiv:1710.09412). λ
     Beta(`alpha`, `alpha`) is drawn for every sample, as in Keras; the paper and torchvision draw one for a batch, and
    torchvision's partner is the previous sample. The result is float32. The label becomes the probabilities of the
    classes, `[num_classes]` of float32: give the net such an input and the loss CategoricalCrossentropy, and the test
    split a CategoryEncoding.
    """

    type: Literal["MixUp"] = "MixUp"
    alpha: Positive = 0.2
    """Parameter of the distribution of λ. Small values mostly mix little; 1 makes all weights equally likely."""

    samples: ClassVar = ({"num_classes": 10},)

    def infer(self, field: FieldType) -> FieldType:
        """(…) of any type → (…) of float32."""
        return FieldType(field.shape, "float32")

    def mixed(self, values: Array, partner: Array, weight: Array, drawn: Array) -> tuple[Array, Array]:
        """Return the weighted means."""
        import numpy as np

        values = values.astype(np.float32, copy=False)
        share = weight.astype(np.float32).reshape(-1, *(1,) * (values.ndim - 1))
        result = values[partner]
        result -= values
        result *= 1 - share
        result += values
        return result, weight


@TRANSFORMS.register
class CutMix(Mixing):
    """Replace a rectangle of image i by that of its partner p(i) in the batch, and mix labels by area.

    As in "CutMix: Regularization Strategy to Train Strong Classifiers" (arXiv:1905.04899) and torchvision: the sides
    are √(1 − λ) times those of the image, the center is anywhere, parts outside are cut off, and the label's λ is the
    share of remaining pixels. λ
     Beta(`alpha`, `alpha`), the rectangle and the partner are drawn for every sample, as in Keras; the paper and
    torchvision draw one rectangle for a batch. Keras's rectangles lie inside the image, and its `factor` is the maximum
    from which α is drawn. Values keep their type. The label becomes the probabilities of the classes, as with MixUp.
    """

    type: Literal["CutMix"] = "CutMix"
    alpha: Positive = 1.0
    """Parameter of the distribution of λ. Small values mostly give tiny or full rectangles; 1 makes all areas equally
    likely."""

    samples: ClassVar = ({"num_classes": 10},)

    def infer(self, field: FieldType) -> FieldType:
        """(C, H, W) of any type, unchanged. Raises `InputError` for other shapes."""
        if len(field.shape) != 3:
            raise InputError(
                "rectangles are cut from images only", expected="[channels, height, width]", got=str(field)
            )
        return field

    def mixed(self, values: Array, partner: Array, weight: Array, drawn: Array) -> tuple[Array, Array]:
        """Return the images with rectangles of their partners."""
        import numpy as np

        size = np.array(values.shape[2:])
        half = np.sqrt(1 - weight)[:, None] * size / 2
        center = drawn * size
        low = np.clip(np.rint(center - half), 0, size).astype(np.int64)
        high = np.clip(np.rint(center + half), 0, size).astype(np.int64)
        result = values.copy(order="K")
        for row, ((top, left), (bottom, right)) in enumerate(zip(low, high, strict=True)):
            result[row, :, top:bottom, left:right] = values[partner[row], :, top:bottom, left:right]
        return result, 1 - (high - low).prod(axis=1) / size.prod()


def symmetric_beta(alpha: float, drawn: Array) -> Array:
    """Draw from Beta(α, α), (N,) of float64, with four uniform numbers in [0, 1) each, (N, 4), for every α above 0.

    Beta(α+1, α+1) by Ulrich's method ("Computer generation of distributions on the m-sphere", 1984): the projection of
    a point of the unit disc. Then Gamma(α) = Gamma(α+1) · U^(1/α) for both gammas whose ratio a beta is, in logarithms,
    since U^(1/α) underflows for small α.
    """
    import numpy as np

    first, two, three, four = 1 - drawn.T  # none is 0
    side = np.sqrt(1 - first ** (2 / (2 * alpha + 1))) * np.cos(2 * np.pi * two)
    odds = np.log1p(side) - np.log1p(-side) + (np.log(three) - np.log(four)) / alpha
    share: Array = 1 / (1 + np.exp(-np.clip(odds, -700, 700)))
    return share
