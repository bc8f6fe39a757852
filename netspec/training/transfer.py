"""Initialization of a training with weights from a file, as `init_from` describes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.compile import Compiler
from netspec.errors import InputError, Problem
from netspec.exchange.importing import import_weights
from netspec.exchange.interface import Target
from netspec.exchange.match_weights import Coverage, fits_nothing, match_weights, renamed
from netspec.schema.specs.init_from import InitFromSpec
from netspec.schema.specs.paths import resolve_path
from netspec.schema.specs.patterns import Pattern
from netspec.schema.specs.train import TrainSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Transfer:
    """Values loaded from a file."""

    file: Path
    coverage: Coverage

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the event `init_from`."""
        rows = [{"name": row.name, "status": row.status} for row in self.coverage.rows]
        return {"file": str(self.file), "loaded": len(self.coverage.arrays), "rows": rows,
                "table": self.coverage.render()}  # fmt: skip


def init_from(spec: TrainSpec, compiler: Compiler) -> Transfer | None:
    """Initialize the states of a net from the file that the training names; return None if it names no file.

    Raises `InputError`, with the location in the spec, if the file is not a weights file or does not match the plan.
    """
    transfer = plan_transfer(spec, compiler)
    if transfer is not None:
        for name, array in transfer.coverage.arrays.items():
            compiler.assign(name, array)
    return transfer


def plan_transfer(spec: TrainSpec, compiler: Compiler) -> Transfer | None:
    """Return the values that `init_from` would load, without assigning them. Raises the same errors."""
    plan = spec.init_from
    if plan is None:
        return None
    file = resolve_path(plan, "file")
    types = compiler.types("parameter", "statistic")

    def rename(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return renamed(plan.map, arrays, path="init_from.map", where=partial(plan.where, "map"))

    try:
        arrays = import_weights(file, Target(compiler.spec, types, rename))
    except InputError as error:
        raise InputError([
            problem if problem.location else problem.at(plan.where("file"), "init_from.file")
            for problem in error.problems
        ]) from None  # fmt: skip
    try:
        coverage = match_weights(types, arrays, partial=plan.require != "all", source=plan.file)
    except InputError as error:
        location = plan.where("require") if "require" in plan.model_fields_set else plan.where("file")
        raise InputError([problem.at(location, "init_from.require") for problem in error.problems]) from None
    problems = list(_missing(plan, coverage, list(types))) if isinstance(plan.require, tuple) else []
    if problems:
        raise InputError(problems)
    return Transfer(file, coverage)


def _missing(plan: InitFromSpec, coverage: Coverage, names: list[str]) -> list[Problem]:
    """Return a problem for each required parameter that the file does not have in the right shape."""
    problems: list[Problem] = []
    for index, text in enumerate(plan.require):
        path = ("require", index) if len(plan.require) > 1 else ("require",)
        location, pattern = plan.where(*path), Pattern(text)
        if not any(name in pattern for name in names):
            problems.append(fits_nothing(text, location, "init_from.require", names, "the net"))
        problems += [
            Problem(
                f"{plan.file}: `{row.name}` {'is missing' if row.file_shape is None else 'has the wrong shape'}",
                location,
                "init_from.require", expected=str(list(row.net_shape or ())),
                got=None if row.file_shape is None else str(list(row.file_shape)),
            )
            for row in coverage.rows if row.name in pattern and row.status in ("missing", "shape differs")
        ]  # fmt: skip
    return problems
