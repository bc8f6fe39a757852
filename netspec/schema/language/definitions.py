"""Blocks as they are written in a document, and the values that a call gives to their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netspec.errors import Call, Location, Problem, did_you_mean, listing
from netspec.schema.language.blocks import CALL_FIELDS
from netspec.schema.language.interpolation import Evaluator, Scope
from netspec.schema.yaml.tree import Map, Seq, copied


@dataclass(frozen=True)
class Definition:
    """A block whose definition can be used; what else is wrong with it validation tells."""

    params: Map
    inputs: tuple[str, ...]
    layers: Seq
    outputs: tuple[Any, Location] | None


def definition_of(found: Any) -> Definition | None:
    """Read the definition of a block; None if it is not one."""
    if not isinstance(found, Map):
        return None
    params, layers = found.get("params", Map(found.origin)), found.get("layers")
    inputs = names_at(found, "inputs") if "inputs" in found else Named(("input",), ())
    outputs = (found["outputs"], found.value_at["outputs"]) if found.get("outputs") is not None else None
    if not isinstance(params, Map) or not isinstance(layers, Seq) or not layers or inputs is None:
        return None
    return Definition(params, inputs.names, layers, outputs)


@dataclass(frozen=True)
class Named:
    """A name or names as they are written, each with its place."""

    names: tuple[str, ...]
    places: tuple[Location, ...]


def names_at(holder: Map, key: str) -> Named | None:
    """Return the name or names at `key`; None if the value is missing or not a name."""
    value = holder.get(key)
    if isinstance(value, str):
        return Named((value,), (holder.value_at[key],))
    if isinstance(value, Seq) and value and all(isinstance(one, str) for one in value):
        return Named(tuple(value), tuple(value.value_at))
    return None


@dataclass(frozen=True)
class Arguments:
    """What a call gives to the parameters of a block."""

    definition: Definition
    block: str
    entry: Map
    """The call, evaluated."""
    place: Location
    note: tuple[str, ...]
    """Where the block is defined."""
    evaluator: Evaluator
    around: Scope
    """The variables where the call stands."""

    def scope(self, variables: Scope, path: str, defaults: str, calls: tuple[Call, ...]) -> Scope:
        """The values of all parameters on top of those of the net's variables; problems go to the evaluator.

        A default may use the parameters before it. `path` is that of the call, `defaults` that of the parameters.
        """
        self.evaluator.problems += [*self._strange(path), *self._missing(path)]
        params, scope = self.definition.params, dict(variables)
        for name in params:
            holder = self.entry
            if name not in holder:
                holder = copied(params, calls)
                self.evaluator.evaluate(holder, scope, defaults, tuple(set(holder) - {name}))
            scope[name] = self.evaluator.known(holder[name], holder.value_at[name])
        return scope

    def _given(self) -> list[str]:
        return [key for key in self.entry if key not in CALL_FIELDS]

    def _strange(self, path: str) -> list[Problem]:
        """Return the given names that are not parameters."""
        known = list(self.definition.params)
        return [
            Problem(
                f"the block `{self.block}` has no parameter `{key}`", self.entry.key_at[key], f"{path}.{key}",
                expected=f"one of {listing(known)}" if known else "nothing: it has none",
                hint=did_you_mean(key, [*known, *CALL_FIELDS]), notes=self.note,
            )
            for key in self._given() if key not in known
        ]  # fmt: skip

    def _missing(self, path: str) -> list[Problem]:
        """Parameters without a value, but for those that are given under a name that is nearly theirs."""
        params = self.definition.params
        missing = [name for name, default in params.items() if default is None and name not in self.entry]
        strange = [key for key in self._given() if key not in params]
        told = [name for name in missing if any(did_you_mean(key, [name]) for key in strange)]
        return [
            Problem(
                f"the block `{self.block}` needs `{name}`, which is missing", self.place, f"{path}.{name}",
                expected=f"`{name}: …`", notes=self.note,
                hint=f'for the `{name}` that is known here: `{name}: "${{{name}}}"`' if name in self.around else None,
            )
            for name in missing if name not in told
        ]  # fmt: skip
