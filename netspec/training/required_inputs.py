"""Fields and ranges of values that a net's programs require of their inputs."""

from __future__ import annotations

from collections.abc import Sequence

from netspec.compile import Compiler, ProgramKind
from netspec.data.base import FieldType
from netspec.data.input_binding import ValueRange
from netspec.graph.ops.source import Input


def input_fields(compiler: Compiler, purposes: Sequence[ProgramKind]) -> dict[str, FieldType]:
    """Return the inputs of the net that programs for these purposes read, and that a loader must fill."""
    inputs: dict[str, FieldType] = {}
    for purpose in purposes:
        for name, value in compiler.graph(purpose, 1).inputs().items():
            assert isinstance(value.op, Input)
            if name in compiler.spec.inputs:
                inputs[name] = FieldType(value.shape[1:], str(value.dtype))
    return inputs


def input_ranges(compiler: Compiler) -> dict[str, ValueRange]:
    """Return the range of integers that the net's layers accept from each input."""
    return {
        name: ValueRange(domain.low, domain.high - 1, domain.why, tuple(sorted(domain.also)), domain.setting)
        for name, domain in compiler.domains.items()
    }
