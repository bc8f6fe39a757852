"""A rate that stays, and the field type that takes a bare number for it."""

from __future__ import annotations

from sys import float_info
from typing import Annotated, Any, ClassVar, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from netspec.schema.kinds import SCHEDULES
from netspec.schema.spec import Member, describe, problem
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
    """A number as a constant schedule; what may be another schedule as it is."""
    if isinstance(value, (dict, ScheduleSpec)):
        return value
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


class ScheduleOrNumber(Member):
    """Annotation of a field that takes any schedule, or a number for a constant one."""

    def __init__(self) -> None:
        super().__init__(SCHEDULES)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_constant, super().__get_pydantic_core_schema__(source, handler))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        member = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, member]}


Schedule = Annotated[ScheduleSpec, ScheduleOrNumber()]
"""A schedule, or a number for a constant one; always a schedule once validated."""
