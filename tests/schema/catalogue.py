"""A small catalogue of stand-in classes, so that these tests need none of the real layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from netspec.schema.specs.data import SOURCES, TRANSFORMS, SplitFields
from netspec.schema.specs.kinds import (
    INITIALIZERS,
    LAYERS,
    LOSSES,
    METRICS,
    REGISTRIES,
    SCHEDULES,
    SOLVERS,
    LayerFields,
    LossFields,
    MetricFields,
)
from netspec.schema.specs.paths import FilePath
from netspec.schema.specs.spec import Member, Spec


class GlorotUniform(Spec):
    """A stand-in."""

    type: Literal["GlorotUniform"] = "GlorotUniform"
    scale: float = Field(default=1.0, gt=0)
    """how wide"""


class Conv2D(LayerFields):
    """A stand-in."""

    type: Literal["Conv2D"] = "Conv2D"
    filters: PositiveInt
    """number of output channels"""
    kernel_size: int | Annotated[tuple[int, int], Field(strict=False)]
    """height and width"""
    strides: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)] = Field(default_factory=lambda: [1, 1])
    """steps"""
    padding: Literal["valid", "same"] = "valid"
    """what is added at the edges"""
    use_bias: bool = True
    """whether there is a bias"""
    kernel_initializer: Annotated[Spec, Member(INITIALIZERS)] = GlorotUniform()
    """first values"""


class Dense(LayerFields):
    """A stand-in."""

    type: Literal["Dense"] = "Dense"
    units: PositiveInt
    """number of outputs"""
    activation: Literal["relu", "tanh"] | None = None
    """what is applied to the outputs"""


class Flatten(LayerFields):
    """A stand-in."""

    type: Literal["Flatten"] = "Flatten"


class Add(LayerFields):
    """A stand-in."""

    type: Literal["Add"] = "Add"


class Dropout(LayerFields):
    """A stand-in."""

    type: Literal["Dropout"] = "Dropout"
    rate: Annotated[float, Field(ge=0, lt=1)]
    """share of elements set to 0"""


class Crossentropy(LossFields):
    """A stand-in."""

    type: Literal["SparseCategoricalCrossentropy"] = "SparseCategoricalCrossentropy"
    from_logits: bool = False
    """whether predictions are logits"""


class Accuracy(MetricFields):
    """A stand-in."""

    type: Literal["SparseCategoricalAccuracy"] = "SparseCategoricalAccuracy"


class ExponentialDecay(Spec):
    """A stand-in."""

    type: Literal["ExponentialDecay"] = "ExponentialDecay"
    initial: float
    """first value"""
    rate: float = 0.9
    """factor"""


class SGD(Spec):
    """A stand-in."""

    type: Literal["SGD"] = "SGD"
    learning_rate: Annotated[float, Field(gt=0)] | Annotated[Spec, Member(SCHEDULES)] = 0.01
    """how far to step"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """how much of the last step is kept"""


class Mnist(SplitFields):
    """A stand-in."""

    source: Literal["mnist"] = "mnist"
    split: Literal["train", "test"]
    """which part"""


class Csv(SplitFields):
    """A stand-in."""

    source: Literal["csv"] = "csv"
    path: FilePath
    """the file"""
    also: FilePath | None = None
    """another file"""


class Rescaling(Spec):
    """A stand-in."""

    type: Literal["Rescaling"] = "Rescaling"
    scale: float
    """factor"""


MEMBERS: dict[Any, tuple[type[Spec], ...]] = {
    LAYERS: (Conv2D, Dense, Flatten, Add, Dropout),
    LOSSES: (Crossentropy,),
    METRICS: (Accuracy,),
    INITIALIZERS: (GlorotUniform,),
    SCHEDULES: (ExponentialDecay,),
    SOLVERS: (SGD,),
    SOURCES: (Mnist, Csv),
    TRANSFORMS: (Rescaling,),
}


@contextmanager
def stand_ins() -> Iterator[None]:
    """Replace the members of all registries by the stand-ins while the block runs."""
    before = [(registry, registry._classes, registry._package, registry._plugins) for registry in REGISTRIES.values()]
    try:
        for registry in REGISTRIES.values():
            registry._classes, registry._package, registry._plugins = {}, None, {}
        for registry, classes in MEMBERS.items():
            for cls in classes:
                registry.register(cls)
        yield
    finally:
        for registry, classes_before, package, plugins in before:
            registry._classes, registry._package, registry._plugins = classes_before, package, plugins
