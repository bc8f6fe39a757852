"""`search`: values of a training file to try, and how they are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from netspec.errors import Problem, did_you_mean, listing
from netspec.schema.language.overrides import value_at
from netspec.schema.specs.spec import Spec, describe, problem

Number = int | float
Scalar = bool | int | float | str | None


class SearchedField(Spec):
    """The values to try for one field: those from `low` to `high`, or `choices`."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "min": "use `low`",
        "max": "use `high`",
        "lower": "use `low`",
        "upper": "use `high`",
        "values": "use `choices`",
        "categories": "use `choices`",
        "scale": "use `log: true`",
        "distribution": "use `low` and `high`, with `log: true` for a logarithmic scale, or `choices`",
        "q": "use `step`",
    }

    low: Number | None = None
    """Lowest value. If `low` and `high` are both integers, so are all values."""
    high: Number | None = None
    """Highest value."""
    log: bool = False
    """Whether to choose from `low` to `high` on a logarithmic scale, as for learning rates."""
    step: Number | None = Field(default=None, gt=0)
    """Distance between values from `low` to `high`. By default 1 for integers, otherwise none."""
    choices: list[Any] = Field(default_factory=list)
    """Values to choose from: numbers, texts, lists or mappings, such as whole solvers."""
    when: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    """Searched fields above this one, each with the value, or the list of values, that this field needs. In other
    trials the field keeps its value in the file."""

    @property
    def is_integer(self) -> bool:
        """Whether all values are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def values_to_check(self) -> list[Any]:
        """The lowest and the highest value, or all choices."""
        return list(self.choices) if self.choices else [self.low, self.high]

    def includes(self, value: Any) -> bool:
        """Return whether a value is one of those to try."""
        if self.choices:
            return any(type(choice) is type(value) and choice == value for choice in self.choices)
        low, high = self.low, self.high
        assert low is not None
        assert high is not None
        if isinstance(value, bool) or not isinstance(value, int if self.is_integer else (int, float)):
            return False
        steps = (value - low) / (self.step or 1)
        return low <= value <= high and (self.step is None or abs(steps - round(steps)) < 1e-9)

    def applies(self, chosen: dict[str, Any]) -> bool:
        """Whether the field is searched in a trial with these values of the fields above it."""
        return all(
            name in chosen and chosen[name] in (values if isinstance(values, list) else [values])
            for name, values in self.when.items()
        )

    @model_validator(mode="after")
    def _range_or_choices(self) -> Self:
        if self.choices:
            fields = type(self).model_fields  # a resolved spec also has the unused fields
            if given := [
                name for name in ("high", "log", "low", "step") if getattr(self, name) != fields[name].default
            ]:
                raise problem("`choices` cannot be combined with a range", field=given[0], hint="remove one of them")
            return self
        low, high = self.low, self.high
        if low is None or high is None:
            missing = [name for name in ("low", "high") if getattr(self, name) is None]
            raise problem(
                "values to try are missing", expected="`low` and `high`, or `choices` with at least one value",
                got=f"no {' and no '.join(missing)}",
            )  # fmt: skip
        if low >= high:
            raise problem("`high` must be above `low`", field="high", expected=f"above {low}", got=describe(high))
        if self.log and low <= 0:
            raise problem("`low` must be above 0 with `log: true`", field="low", expected="above 0", got=describe(low))
        if self.log and self.step is not None:
            raise problem("`step` cannot be combined with `log: true`", field="step", hint="remove one of them")
        if self.is_integer and isinstance(self.step, float):
            raise problem("`step` of a range of integers must be an integer", field="step", got=describe(self.step))
        return self


class SearchSpec(Spec):
    """Values to try for fields of the training file and its net, for `netspec search`. `netspec train` ignores it."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "space": "use `fields`",
        "parameters": "use `fields`",
        "params": "use `fields`",
        "n_trials": "use `trials`",
        "num_samples": "use `trials`",
        "timeout": "it is an option of the command line: `netspec search … --minutes 30`",
        "direction": "a search improves `monitor` of `train`, in the direction `mode`",
        "metric": "a search improves `monitor` of `train`",
        "objective": "a search improves `monitor` of `train`",
        "scheduler": "use `pruner`",
        "algorithm": "use `sampler`",
    }

    fields: dict[str, SearchedField] = Field(min_length=1)
    """The fields to search, by the dotted path that overrides use, such as `solver.learning_rate` or `net.vars.width`,
    each with its values."""
    trials: PositiveInt | None = None
    """Number of training runs. By default 20; of a grid, one for each combination."""
    sampler: Literal["tpe", "random", "grid"] = "tpe"
    """Method that chooses values: by a model of the results so far (tree-structured Parzen estimator), at random, or
    all combinations of `choices` and of ranges with a `step`, in random order."""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """When a trial is pruned, that is, ended early: if an evaluation is worse than the median of the other trials at
    the same evaluation, by the successive halving of Hyperband, or never."""
    batch: PositiveInt = 4
    """Number of trials that start together. Those that differ only in numbers (rates, decays, seeds) run one program in
    turns, step by step, which takes less time. More of them start before the results of others are known.
    `--minutes`, and so by default `--auto`, turns batches off."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of the sampler. The training runs have the seed in `train`."""
    baseline: bool = False
    """Whether the first trial has the values that the file has, and is never pruned. The best trial is then at least as
    good on the data of `train.monitor`, unless the first one fails or a time limit stops it."""

    def baseline_values(self, training: Any) -> dict[str, Any]:
        """Return the value that a training file has for each field, without those whose conditions do not hold.

        Fields that the file leaves out are missing as well.
        """
        values: dict[str, Any] = {}
        for name, searched in self.fields.items():
            if searched.applies(values):
                with suppress(KeyError):
                    values[name] = value_at(training.written, name.split("."))
        return values

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield unknown fields in conditions, continuous ranges in a grid, and a training without evaluations."""
        above: list[str] = []
        for name, value in self.fields.items():
            for other in value.when:
                if other not in above:
                    yield Problem(
                        f"`fields` has no `{other}` above `{name}`", value.where("when", other, key=True),
                        f"fields.{name}.when.{other}",
                        expected=f"one of {listing(above)}" if above else "no `when` for the first field",
                        hint=did_you_mean(other, above),
                    )  # fmt: skip
            above.append(name)
            is_endless = not value.choices and value.step is None and not value.is_integer
            if self.sampler == "grid" and is_endless:
                yield Problem(
                    f"a grid cannot try all values of `{name}`", value.where(), f"fields.{name}",
                    expected="`choices`, integers, or a `step`", got="a continuous range",
                )  # fmt: skip
        if training.data.monitored not in training.data.splits():
            yield Problem(
                "a search needs evaluations to compare", self.where(),
                expected="`data.validation`", got="no validation or test data",
            )  # fmt: skip

    def baseline_problems(self, training: Any) -> Iterator[Problem]:
        """Yield a problem for each field whose value in the file is missing or not among those to try.

        Not part of `conflicts`: a resolved spec replaces values (a learning rate becomes a schedule), and would be
        refused.
        """
        if not self.baseline or training.written is None:
            return
        values = self.baseline_values(training)
        for name, searched in self.fields.items():
            if not searched.applies(values) or (name in values and searched.includes(values[name])):
                continue
            tried = searched.choices or [f"{searched.low} to {searched.high}"]
            yield Problem(
                f"with `baseline: true`, `{name}` in the file must be one of the values to try",
                searched.where(), f"search.fields.{name}",
                expected=f"one of {listing([str(value) for value in tried], 5)}" if searched.choices else tried[0],
                got=f"{values[name]!r}" if name in values else "no value in the file",
                hint="change the file, extend the values to try, or remove `baseline`",
            )  # fmt: skip
