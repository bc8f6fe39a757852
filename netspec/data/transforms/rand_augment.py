"""`RandAugment` and `AugMix`: transforms drawn at random for each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, PrivateAttr

from netspec.data.base import Array
from netspec.data.imaging.base import ColorTransform, Draw, ImageTransform
from netspec.data.imaging.fields import Fraction
from netspec.data.transforms.color import RandomBrightness, RandomContrast
from netspec.data.transforms.filtering import RandomSharpness
from netspec.data.transforms.grayscale import RandomColorDegeneration
from netspec.data.transforms.tones import AutoContrast, Equalization, RandomPosterization, Solarization
from netspec.data.transforms.warping import RandomRotation, RandomShear, RandomTranslation
from netspec.schema.specs.data import TRANSFORMS


class _RandomChoice(ColorTransform):
    """Base of both: Keras's transforms to choose from, all with the same factor."""

    accepted_channels: ClassVar[tuple[int, ...]] = (1, 3)

    interpolation: Literal["nearest", "bilinear"] = "bilinear"
    """The interpolation between pixels of transforms that move the image."""

    _choices: tuple[ImageTransform, ...] = PrivateAttr(default=())
    _only_moves: bool = PrivateAttr(default=False)
    """Whether transforms that change colors are left out, since the image is a mask."""

    def shapes(self, factor: tuple[float, float]) -> tuple[ImageTransform, ...]:
        """Return the transforms that move pixels, and those that remap tones."""
        options: dict[str, Any] = {"interpolation": self.interpolation}
        values: dict[str, Any] = {"value_range": self.value_range}
        either = (-factor[1], factor[1])
        return (
            RandomShear(x_factor=factor, y_factor=factor, **options),
            RandomTranslation(height_factor=either, width_factor=either, **options),
            RandomRotation(factor=(-factor[1] / 6, factor[1] / 6), **options),
            RandomPosterization(factor=(8 - round(4 * factor[1]), 8 - round(4 * factor[0])), **values),
            Solarization(threshold_factor=(1 - factor[1], 1 - factor[0]), **values),
            AutoContrast(**values),
            Equalization(**values),
        )

    def colors(self, factor: tuple[float, float]) -> tuple[ImageTransform, ...]:
        """Return the transforms that change colors."""
        strength = factor[1]
        values: dict[str, Any] = {"value_range": self.value_range}
        return (
            RandomBrightness(factor=(-strength, strength), **values),
            RandomColorDegeneration(factor=factor, **values),
            RandomContrast(factor=(strength, strength), **values),
            RandomSharpness(factor=(0.5 - strength / 2, 0.5 + strength / 2), **values),
        )

    @property
    def most(self) -> int:
        """Largest number of random numbers that a transform uses."""
        return max(choice.draws for choice in self._choices)

    def chosen(self, image: Array, draw: Draw, start: int, choices: Sequence[ImageTransform | None]) -> Array:
        """Return the image after the transform that the number at `start` selects, with the numbers after it."""
        choice, part = _choice(draw, start, choices)
        if choice is None or (self._only_moves and choice.positions != "moved"):
            return image
        return choice.change(image, part)


def _choice(draw: Draw, start: int, choices: Sequence[ImageTransform | None]) -> tuple[ImageTransform | None, Draw]:
    """Return the transform that the number at `start` selects, and the numbers for it."""
    choice = choices[int(draw.numbers[start] * len(choices))]
    return choice, draw.part(start + 1, 0 if choice is None else choice.draws)


@TRANSFORMS.register
class RandAugment(_RandomChoice):
    """Apply a few transforms, drawn for each image from the eleven of Keras (Cubuk et al., "RandAugment", 2019).

    RandomShear, RandomTranslation, RandomRotation, RandomBrightness, RandomColorDegeneration, RandomContrast,
    RandomSharpness, RandomPosterization, Solarization, AutoContrast, Equalization.

    A larger `factor` means larger changes, in either direction, as in the paper: images rotate by up to 60° · factor, 8
    − 4 · factor bits are kept, values above 1 − factor of the range are inverted. (In Keras 3.15 they rotate by 360° ·
    factor, in one direction only, and a small factor removes most bits and inverts most values.)
    """

    foreign_fields: ClassVar[dict[str, str]] = {"magnitude": "use `factor`, from 0 to 1"}

    random: ClassVar[bool] = True
    positions: ClassVar = "moved"

    type: Literal["RandAugment"] = "RandAugment"
    num_ops: PositiveInt = 2
    """Number of transforms that are applied one after the other; one may occur twice."""
    factor: Fraction = (0.0, 0.5)
    """The `factor` of each: `f` means 0 to f, or `[lowest, highest]`. One-directional ones use the lowest."""

    samples: ClassVar = ({"num_ops": 2, "factor": 0.3},)

    def model_post_init(self, context: Any) -> None:
        """Build the transforms to choose from."""
        super().model_post_init(context)
        self._choices = (*self.shapes(self.factor), *self.colors(self.factor))

    @property
    def draws(self) -> int:
        return self.num_ops * (1 + self.most)

    def change(self, image: Array, draw: Draw) -> Array:
        for start in self._starts():
            image = self.chosen(image, draw, start, self._choices)
        return image

    def for_masks(self, fill: int) -> Self:
        transform = super().for_masks(fill)
        transform._choices = tuple(choice.for_masks(fill) for choice in self._choices)
        transform._only_moves = True
        return transform

    def move_points(self, points: Array, size: tuple[int, int], draw: Draw) -> Array:
        for start in self._starts():
            choice, part = _choice(draw, start, self._choices)
            if choice is not None and choice.positions == "moved":
                points = choice.move_points(points, size, part)
        return points

    def _starts(self) -> range:
        """Return the positions of each transform's random numbers."""
        return range(0, self.draws, 1 + self.most)


@TRANSFORMS.register
class AugMix(_RandomChoice):
    """Mix several chains of random transforms with each other and with the image (Hendrycks et al., 2019), as in Keras.

    y = w · x + (1 − w) · Σ mᵢ · chainᵢ(x), with m from a Dirichlet and w from a beta distribution. Strengths are those
    of RandAugment.
    """

    random: ClassVar[bool] = True
    positions: ClassVar = None  # a mean of images with different positions

    type: Literal["AugMix"] = "AugMix"
    num_chains: PositiveInt = 3
    """Number of chains that are mixed."""
    chain_depth: PositiveInt = 3
    """Maximum number of transforms in a chain; each of them may be absent."""
    factor: Fraction = (0.0, 0.3)
    """As in RandAugment."""
    alpha: Annotated[float, Field(gt=0)] = 1.0
    """Parameter of both distributions. Small values make one weight large, large values make all weights similar."""
    all_ops: bool = True
    """Whether to choose from all transforms of RandAugment, or only from those that do not change colors."""

    samples: ClassVar = ({"factor": 0.3}, {"num_chains": 2, "chain_depth": 1, "all_ops": False})

    def model_post_init(self, context: Any) -> None:
        """Build the transforms to choose from."""
        super().model_post_init(context)
        self._choices = (*self.shapes(self.factor), *(self.colors(self.factor) if self.all_ops else ()))

    @property
    def draws(self) -> int:
        return self.num_chains * self.chain_depth * (1 + self.most)

    def change(self, image: Array, draw: Draw) -> Array:
        from netspec.data.imaging.color import floats, like

        generator = draw.generator()
        shares = generator.dirichlet([self.alpha] * self.num_chains)
        weight = generator.beta(self.alpha, self.alpha)
        mixed = floats(image) * weight
        choices = (*self._choices, None)
        for chain, share in enumerate(shares.tolist()):
            changed = image
            for depth in range(self.chain_depth):
                start = (chain * self.chain_depth + depth) * (1 + self.most)
                changed = self.chosen(changed, draw, start, choices)
            mixed += mixed.dtype.type((1 - weight) * share) * changed
        return like(image, mixed, self.values)
