"""Definitions of blocks in a document, and the values of their parameters in a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from netspec.errors import Call, Location, Problem, did_you_mean, listing
from netspec.schema.language.blocks import CALL_FIELDS
from netspec.schema.language.interpolation import Evaluator, Scope
from netspec.schema.yaml.tree import Map, Seq, copied


@dataclass(frozen=True)
class Definition:
    """A usable definition of a block; validation reports its other problems."""

    params: Map
    inputs: tuple[str, ...]
    layers: Seq
    outputs: tuple[Any, Location] | None


def definition_of(value: Any) -> Definition | None:
    """Read the definition of a block; None if it is not one."""
    if not isinstance(value, Map):
        return None
    params, layers = value.get("params", Map(value.origin)), value.get("layers")
    inputs = names_at(value, "inputs") if "inputs" in value else LocatedNames(("input",), ())
    outputs = (value["outputs"], value.value_at["outputs"]) if value.get("outputs") is not None else None
    if not isinstance(params, Map) or not isinstance(layers, Seq) or not layers or inputs is None:
        return None
    return Definition(params, inputs.names, layers, outputs)


@dataclass(frozen=True)
class LocatedNames:
    """Names as written, each with its location."""

    names: tuple[str, ...]
    locations: tuple[Location, ...]


def names_at(holder: Map, key: str) -> LocatedNames | None:
    """Return the name or names at `key`; None if the value is missing or not a name."""
    value = holder.get(key)
    if isinstance(value, str):
        return LocatedNames((value,), (holder.value_at[key],))
    if isinstance(value, Seq) and value and all(isinstance(item, str) for item in value):
        return LocatedNames(tuple(value), tuple(value.value_at))
    return None


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call of a block."""

    definition: Definition
    block: str
    entry: Map
    """The call, evaluated."""
    location: Location
    note: tuple[str, ...]
    """A note for messages that says where the block is defined."""
    evaluator: Evaluator
    outer_scope: Scope
    """The variables at the call."""

    def scope(self, variables: Scope, path: str, defaults: str, calls: tuple[Call, ...]) -> Scope:
        """Return the values of the net's variables and of all parameters; problems go to the evaluator.

        A default may use the parameters before it. `path` is the path of the call, `defaults` of the parameters.
        """
        self.evaluator.problems += [*self._unknown(path), *self._missing(path)]
        params, scope = self.definition.params, dict(variables)
        for name in params:
            holder = self.entry
            if name not in holder:
                holder = copied(params, calls)
                self.evaluator.evaluate(holder, scope, defaults, tuple(set(holder) - {name}))
            scope[name] = self.evaluator.evaluated(holder[name], holder.value_at[name])
        return scope

    def _argument_names(self) -> list[str]:
        return [key for key in self.entry if key not in CALL_FIELDS]

    def _unknown(self, path: str) -> list[Problem]:
        """Report arguments that are not parameters."""
        parameters = list(self.definition.params)
        return [
            Problem(
                f"the block `{self.block}` has no parameter `{key}`", self.entry.key_at[key], f"{path}.{key}",
                expected=f"one of {listing(parameters)}" if parameters else "nothing: it has none",
                hint=did_you_mean(key, [*parameters, *CALL_FIELDS]), notes=self.note,
            )
            for key in self._argument_names() if key not in parameters
        ]  # fmt: skip

    def _missing(self, path: str) -> list[Problem]:
        """Report parameters without a value, except if an unknown argument has a similar name."""
        params = self.definition.params
        missing = [name for name, default in params.items() if default is None and name not in self.entry]
        unknown = [key for key in self._argument_names() if key not in params]
        misspelled = [name for name in missing if any(did_you_mean(key, [name]) for key in unknown)]
        return [
            Problem(
                f"the block `{self.block}` needs `{name}`, which is missing", self.location, f"{path}.{name}",
                expected=f"`{name}: …`", notes=self.note,
                hint=f'to pass on the variable `{name}`: `{name}: "${{{name}}}"`' if name in self.outer_scope else None,
            )
            for name in missing if name not in misspelled
        ]  # fmt: skip
