"""A constant rate, and the field types that accept a number, a schedule, or a list of schedules."""

from __future__ import annotations

from math import isfinite
from sys import float_info
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core.core_schema import (
    CoreSchema,
    ValidatorFunctionWrapHandler,
    float_schema,
    no_info_before_validator_function,
    no_info_wrap_validator_function,
    simple_ser_schema,
)

from netspec.schema.messages.pydantic_messages import number_hint
from netspec.schema.specs.kinds import SCHEDULES
from netspec.schema.specs.spec import Member, describe, problem
from netspec.schema.yaml.tree import Map, Seq
from netspec.solvers.schedules.base import InitialSchedule, ScheduleSpec


@SCHEDULES.register
class Constant(InitialSchedule):
    """The same rate at every step: lr(t) = initial. A number in place of a schedule means this schedule."""

    type: Literal["Constant"] = "Constant"
    samples: ClassVar = ({"initial": 0.05},)

    def value(self, step: int, total_steps: int) -> float:
        return self.initial


def _described(value: Any) -> Any:
    """Return the description of a schedule, with a list as a `Sequence`; None for a number. Raises for other values."""
    if isinstance(value, (dict, ScheduleSpec)):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, dict) for part in value):
        return _sequence(value)
    hint = number_hint(value, (int, float)) if isinstance(value, str) else None
    if isinstance(value, str) and not hint:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise problem("has an invalid value", expected="a number, or a schedule", got=describe(value), hint=hint)
    return None


def _constant(value: Any) -> Any:
    """Convert a number to a constant schedule; return the description of another schedule unchanged."""
    if (described := _described(value)) is not None:
        return described
    if not 0 < value <= float_info.max:  # an integer of YAML may be larger than any float
        raise problem("a learning rate must be positive", expected="a finite number above 0", got=describe(value))
    return Constant(initial=float(value))


def _sequence(parts: Any) -> dict[str, Any]:
    """Return the mapping that a list of parts abbreviates, with the locations of the list."""
    if not isinstance(parts, Seq):
        return {"type": "Sequence", "parts": list(parts)}
    sequence = Map(parts.origin)
    sequence.put("type", "Sequence", parts.origin, parts.origin)
    sequence.put("parts", parts, parts.origin, parts.origin)
    return sequence


def _refuse_monitoring(schedule: ScheduleSpec) -> ScheduleSpec:
    if schedule.watches is not None:
        raise problem(
            f"{schedule.type} cannot be part of another schedule",
            expected="a schedule that depends on the step alone",
            got=schedule.type,
            hint=f"{schedule.type} can contain the other schedule: `{{type: {schedule.type}, schedule: …}}`",
        )
    return schedule


def _or_schedule(bounds: dict[str, Any], member: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a number within bounds, a list of schedules, or a schedule."""
    parts = {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["schedule"]}}
    return {"anyOf": [{"type": "number", **bounds}, parts, member]}


class ScheduleOrNumber(Member):
    """Annotation of a field that accepts a schedule, a number for a constant one, or a list for a sequence."""

    def __init__(self) -> None:
        super().__init__(SCHEDULES)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_constant, super().__get_pydantic_core_schema__(source, handler))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _or_schedule({"exclusiveMinimum": 0}, super().__get_pydantic_json_schema__(schema, handler))


def _momentum(value: Any, number: ValidatorFunctionWrapHandler) -> Any:
    """Parse a number from 0 to below 1, or a schedule of such values; a constant schedule becomes a number."""
    if (described := _described(value)) is None:
        return number(value)
    schedule = SCHEDULES.parse(described)
    assert isinstance(schedule, ScheduleSpec)
    bound = schedule.upper_bound
    if not bound < 1:
        raise problem(
            "the values of this schedule must be below 1",
            expected="a schedule with values from 0 to below 1",
            got=f"{schedule.type} with values up to {bound:g}"
            if isfinite(bound)
            else f"{schedule.type}, whose values have no upper bound",
        )
    return schedule.initial if isinstance(schedule, Constant) else schedule


class MomentumOrSchedule(Member):
    """Annotation of a field that accepts a number from 0 to below 1, or a schedule of such numbers."""

    def __init__(self) -> None:
        super().__init__(SCHEDULES)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = float_schema(ge=0, lt=1)
        return no_info_wrap_validator_function(_momentum, number, serialization=simple_ser_schema("any"))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        bounds = {"minimum": 0, "exclusiveMaximum": 1}
        return _or_schedule(bounds, super().__get_pydantic_json_schema__(schema, handler))


Schedule = Annotated[ScheduleSpec, ScheduleOrNumber()]
"""A schedule, a number for a constant one, or a list for a sequence; validated to a schedule."""
Coefficient = Annotated[float | ScheduleSpec, MomentumOrSchedule()]
"""A momentum, or the decay of a moving average of gradients: a number, or a schedule of numbers."""
InnerSchedule = Annotated[ScheduleSpec, ScheduleOrNumber(), AfterValidator(_refuse_monitoring)]
"""A schedule inside another one: it must not depend on evaluations."""
