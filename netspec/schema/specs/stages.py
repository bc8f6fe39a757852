"""`stages`: parts of a training, each with its own length, frozen layers and learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.specs.field_types import Name, NamesOrNone
from netspec.schema.specs.kinds import SCHEDULES, LayerFields
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.monitor import EarlyStoppingFields
from netspec.schema.specs.patterns import Pattern
from netspec.schema.specs.spec import Member, Spec, describe, problem


def _rate(value: Any) -> Any:
    """Convert a number to a constant schedule."""
    if isinstance(value, (dict, Spec)):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise problem("has an invalid value", expected="a number above 0, or a schedule", got=describe(value))
    return {"type": "Constant", "initial": float(value)}


Rate = Annotated[
    Spec,
    Member(SCHEDULES),
    BeforeValidator(_rate, json_schema_input_type=Annotated[float, Field(gt=0)] | Annotated[Spec, Member(SCHEDULES)]),
]
"""A learning rate: a number, or a schedule."""


class StageSpec(Spec):
    """A part of a training. It starts with the final weights of the stage before, and with a new solver state.

    Fields that a stage omits have the values in `train` and `solver`.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "epochs": "use `max_epochs`",
        "steps": "use `max_steps`",
        "trainable": "use `freeze`, with the layers that are not trained",
        "lr": "use `learning_rate`",
        "solver": "all stages use the same solver: set `learning_rate` and `learning_rate_multipliers`",
    }

    name: Name | None = None
    """Name of the stage in logs. By default its number."""
    max_steps: PositiveInt | None = None
    """Number of steps after which the stage ends. By default the length in `train`."""
    max_epochs: PositiveInt | None = None
    """Number of passes over the training data after which the stage ends. By default the length in `train`."""
    freeze: NamesOrNone = ()
    """Layers that are not trained: names of layers, calls of blocks, and groups, or patterns such as `conv*`."""
    learning_rate: Rate | None = None
    """Learning rate; a schedule starts at step 0 when the stage starts. By default the learning rate of the solver."""
    learning_rate_multipliers: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Factors on the learning rate of layers, by names or patterns as in `freeze`: `{trunk: 0.1}`."""
    early_stopping: EarlyStoppingFields | None = None
    """When to end the stage before its last step. By default as in `train`."""

    @model_validator(mode="after")
    def _one_length(self) -> StageSpec:
        if self.max_steps is not None and self.max_epochs is not None:
            raise problem("`max_steps` and `max_epochs` cannot be combined", field="max_epochs",
                          expected="one of `max_steps` and `max_epochs`", got="both")  # fmt: skip
        return self

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield a problem for each name or pattern that matches no layer of the net."""
        names = [link.name for link in resolve_names(training.net).layers]
        fields: list[tuple[str, str, Location | None]] = [
            *(("freeze", text, self._where_frozen(index)) for index, text in enumerate(self.freeze)),
            *(
                ("learning_rate_multipliers", text, self.where("learning_rate_multipliers", text, key=True))
                for text in self.learning_rate_multipliers
            ),
        ]
        for field, text, location in fields:
            if not any(_applies(text, name) for name in names):
                yield Problem(
                    f"`{text}` matches no layer of the net", location, field, expected=f"one of {listing(names)}",
                    hint=did_you_mean(text, names),
                )  # fmt: skip

    def _where_frozen(self, index: int) -> Location | None:
        tree = self.written
        return self.where("freeze", index) if tree is not None and isinstance(tree.get("freeze"), list) else (
            self.where("freeze")
        )  # fmt: skip

    def layer(self, name: str, layer: LayerFields) -> LayerFields:
        """Return a layer of the net with the `freeze` and the learning rate multiplier of this stage."""
        frozen = next((index for index, text in enumerate(self.freeze) if _applies(text, name)), None)
        if frozen is not None and layer.trainable:
            return _changed(layer, "trainable", False, self._where_frozen(frozen))
        factors = [factor for text, factor in self.learning_rate_multipliers.items() if _applies(text, name)]
        if factors:
            return _changed(layer, "learning_rate_multiplier", _product(layer.learning_rate_multiplier, factors[-1]),
                            self.where("learning_rate_multipliers"))  # fmt: skip
        return layer


def _applies(text: str, name: str) -> bool:
    """Whether a name or pattern matches a layer, or the block or group that contains it."""
    return name in Pattern(text) or name in Pattern(f"{text}/*")


def _product(multiplier: float | Mapping[str, float], factor: float) -> float | dict[str, float]:
    if isinstance(multiplier, Mapping):
        return {name: value * factor for name, value in multiplier.items()}
    return multiplier * factor


def _changed(layer: LayerFields, field: str, value: Any, location: Location | None) -> LayerFields:
    """Return a copy of a layer with another value, which is at this location in the document."""
    changed = layer.model_copy(update={field: value})
    tree = layer.written
    if tree is not None and location is not None:
        changed._tree = copy(tree)
        changed._tree.key_at, changed._tree.value_at = dict(tree.key_at), dict(tree.value_at)
        changed._tree.put(field, value, location, location)
    return changed


def stage_specs(training: Any) -> list[Any]:
    """Return a `TrainSpec` without stages for each stage of `training` (a `TrainSpec`).

    Stages after the first have no `init_from`: they start with the weights of the stage before. Test data that is not
    monitored is evaluated by the last stage alone.
    """
    links = resolve_names(training.net).layers
    data = training.data
    validated = data.model_copy(update={"test": None}) if data.monitored != "test" else data
    specs = []
    for number, stage in enumerate(training.stages):
        layers = [stage.layer(link.name, layer) for link, layer in zip(links, training.net.layers, strict=True)]
        rate = {} if stage.learning_rate is None else {"learning_rate": stage.learning_rate}
        changes = {
            "net": training.net.model_copy(update={"layers": layers}),
            "solver": training.solver.model_copy(update=rate),
            "train": training.train.model_copy(update=_loop_changes(stage)),
            "data": data if number == len(training.stages) - 1 else validated,
            "init_from": None if number else training.init_from,
            "stages": [],
        }  # fmt: skip
        specs.append(training.model_copy(update=changes))
    return specs


def _loop_changes(stage: StageSpec) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if stage.max_steps is not None or stage.max_epochs is not None:
        changes = {"max_steps": stage.max_steps, "max_epochs": stage.max_epochs}
    if "early_stopping" in stage.model_fields_set:
        changes["early_stopping"] = stage.early_stopping
    return changes
