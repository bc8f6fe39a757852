"""A rate that stays, and the field type that takes a bare number for it, and a list for a sequence."""

from __future__ import annotations

from sys import float_info
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from netspec.schema.kinds import SCHEDULES
from netspec.schema.spec import Member, describe, problem
from netspec.schema.tree import Map, Seq
from netspec.schema.wording import number_hint
from netspec.solvers.schedules.base import InitialSchedule, ScheduleSpec


@SCHEDULES.register
class Constant(InitialSchedule):
    """The same rate at every step: lr(t) = initial. A bare number in place of a schedule means this one."""

    type: Literal["Constant"] = "Constant"
    samples: ClassVar = ({"initial": 0.05},)

    def value(self, step: int, total_steps: int) -> float:
        return self.initial


def _constant(value: Any) -> Any:
    """A number as a constant schedule, a list of mappings as a sequence; what may be another schedule as it is."""
    if isinstance(value, (dict, ScheduleSpec)):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(part, dict) for part in value):
        return _sequence(value)
    if isinstance(value, str):
        hint = number_hint(value, (int, float))
        if hint:
            raise problem("not a learning rate", expected="a number, or a schedule", got=describe(value), hint=hint)
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise problem("not a learning rate", expected="a number, or a schedule", got=describe(value))
    if not 0 < value <= float_info.max:  # an integer of YAML may be larger than any float
        raise problem("a learning rate must be positive", expected="a finite number above 0", got=describe(value))
    return Constant(initial=float(value))


def _sequence(parts: Any) -> dict[str, Any]:
    """The mapping that a list of parts is short for, with the places of the list."""
    if not isinstance(parts, Seq):
        return {"type": "Sequence", "parts": list(parts)}
    made = Map(parts.origin)
    made.put("type", "Sequence", parts.origin, parts.origin)
    made.put("parts", parts, parts.origin, parts.origin)
    return made


def _known_beforehand(schedule: ScheduleSpec) -> ScheduleSpec:
    if schedule.watches is not None:
        raise problem(
            f"{schedule.type} stands outermost",
            expected="a schedule that is known before the training",
            got=schedule.type,
            hint=f"write `{{type: {schedule.type}, schedule: <this one>}}`: it is a factor on any other",
        )
    return schedule


class ScheduleOrNumber(Member):
    """Annotation of a field that takes any schedule, a number for a constant one, or a list for a sequence."""

    def __init__(self) -> None:
        super().__init__(SCHEDULES)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_constant, super().__get_pydantic_core_schema__(source, handler))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        member = super().__get_pydantic_json_schema__(schema, handler)
        parts = {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["schedule"]}}
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, parts, member]}


Schedule = Annotated[ScheduleSpec, ScheduleOrNumber()]
"""A schedule, a number for a constant one, or a list for a sequence; always a schedule once validated."""
InnerSchedule = Annotated[ScheduleSpec, ScheduleOrNumber(), AfterValidator(_known_beforehand)]
"""A schedule inside another one: it may not depend on how the training goes."""
