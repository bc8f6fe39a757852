"""Weights of a file as the first ones of a training, by the plan under `init_from`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.compile import Compiler
from netspec.errors import InputError, Location, Problem, did_you_mean, listing
from netspec.exchange.coverage import Coverage, match_weights
from netspec.exchange.hdf5 import read_weights
from netspec.schema.paths import resolve_path
from netspec.schema.patterns import Pattern
from netspec.schema.train import TrainSpec
from netspec.schema.transfer import InitFromSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Transfer:
    """What was taken from a file."""

    file: Path
    coverage: Coverage

    def as_json(self) -> dict[str, Any]:
        """The facts of the event `init_from`."""
        rows = [{"name": row.name, "status": row.status} for row in self.coverage.rows]
        return {"file": str(self.file), "loaded": len(self.coverage.arrays), "rows": rows,
                "table": self.coverage.render()}  # fmt: skip


def init_from(spec: TrainSpec, compiler: Compiler) -> Transfer | None:
    """Give the states of a net their first values from the file that the training names; None where it names none.

    Raises `InputError`, with the place of the plan, where the file is none or does not fit as the plan requires.
    """
    found = planned(spec, compiler)
    if found is not None:
        for name, array in found.coverage.arrays.items():
            compiler.states.assign(name, array)
    return found


def planned(spec: TrainSpec, compiler: Compiler) -> Transfer | None:
    """What `init_from` would take; nothing changes. Raises as that does."""
    plan = spec.init_from
    if plan is None:
        return None
    file = resolve_path(plan, "file")
    try:
        given = read_weights(file).arrays
    except InputError as error:
        raise InputError([problem.at(plan.where("file"), "init_from.file") for problem in error.problems]) from None
    wanted = {name: compiler.info[name].value.type for name in compiler.names("parameter", "statistic")}
    arrays = renamed(plan, given)
    try:
        coverage = match_weights(wanted, arrays, partial=plan.require != "all", source=plan.file)
    except InputError as error:
        place = plan.where("require") if "require" in plan.model_fields_set else plan.where("file")
        raise InputError([problem.at(place, "init_from.require") for problem in error.problems]) from None
    problems = list(_missing(plan, coverage, list(wanted))) if isinstance(plan.require, tuple) else []
    if problems:
        raise InputError(problems)
    return Transfer(file, coverage)


def renamed(plan: InitFromSpec, given: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a file by their names in the net. Raises `InputError` where `map` fits nothing or unites names."""
    rules = {Pattern(text): target for text, target in plan.map.items()}
    used: set[str] = set()
    origins: dict[str, str] = {}
    problems: list[Problem] = []
    for name in given:
        rule = next((rule for rule in rules if name in rule), None)
        target: str | None = name
        if rule is not None:
            used.add(rule.text)
            to = rules[rule]
            target = None if to is None else rule.renamed(name, to)
        if target is None:
            continue
        if target in origins:
            place = plan.where("map", rule.text) if rule is not None else plan.where("map")
            problems.append(Problem(f"two arrays of the file become `{target}`", place, "init_from.map",
                                    got=f"`{origins[target]}` and `{name}`", expected="names that differ"))  # fmt: skip
        origins[target] = name
    problems += [
        _of_nothing(text, plan.where("map", text, key=True), "map", list(given), "the file")
        for text in plan.map if text not in used
    ]  # fmt: skip
    if problems:
        raise InputError(problems)
    return {target: given[name] for target, name in origins.items()}


def _missing(plan: InitFromSpec, coverage: Coverage, wanted: list[str]) -> list[Problem]:
    """What the patterns of `require` name and the file does not have."""
    problems: list[Problem] = []
    for index, text in enumerate(plan.require):
        path = ("require", index) if len(plan.require) > 1 else ("require",)
        place, pattern = plan.where(*path), Pattern(text)
        if not any(name in pattern for name in wanted):
            problems.append(_of_nothing(text, place, "require", wanted, "the net"))
        problems += [
            Problem(
                f"{plan.file}: `{row.name}` {'is missing' if row.given is None else 'has another shape'}", place,
                "init_from.require", expected=str(list(row.wanted or ())),
                got=None if row.given is None else str(list(row.given)),
            )
            for row in coverage.rows if row.name in pattern and row.status in ("missing", "shape differs")
        ]  # fmt: skip
    return problems


def _of_nothing(text: str, place: Location | None, field: str, names: list[str], where: str) -> Problem:
    return Problem(
        f"`{text}` fits no name in {where}", place, f"init_from.{field}", expected=f"one of {listing(names)}",
        hint=did_you_mean(text, names),
    )  # fmt: skip
