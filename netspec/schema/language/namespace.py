"""Local names in a net, a called block or a group, and the names in the net that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from netspec.errors import Location
from netspec.schema.specs.names import snake_case
from netspec.schema.yaml.tree import Map


@dataclass
class Namespace:
    """The names that layers of one list may use; each layer adds its own, from top to bottom."""

    prefix: str = ""
    """Prefix that the names of layers in this list get in the net."""
    block: str | None = None
    """The block that contains the list, directly or in a group; None for layers of the net itself."""
    parent: Namespace | None = None
    """The namespace around a group, whose names are visible in the group."""
    names: dict[str, str] = field(default_factory=dict)
    """Local names → names in the net."""
    above: str | None = None
    """The name in the net of what a layer without `from` reads."""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each call with several outputs, their names in the net by name."""
    calls: dict[str, Location] = field(default_factory=dict)
    """Locations of calls, groups and repetitions by name."""
    left_out: set[str] = field(default_factory=set)
    """Names of layers whose condition is false."""
    complete: bool = True
    """False if an entry could not be expanded: then unknown names are not reported, because they may be in it."""
    _taken: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _inputs: frozenset[str] = frozenset()

    @classmethod
    def reading(cls, inputs: Mapping[str, str], prefix: str = "", block: str | None = None) -> Namespace:
        """The namespace of a net with these inputs, or of a block that is called with them."""
        first = next(iter(inputs.values()), None)
        return cls(prefix, block, names=dict(inputs), above=first, _taken=set(inputs), _inputs=frozenset(inputs))

    def reserve(self, items: Any) -> None:
        """Reserve the names of these entries, and of entries of groups, so that default names differ from them."""
        for item in items:
            if isinstance(item, Map):
                name = item.get("name")
                if isinstance(name, str):
                    self._taken.add(name)
                elif isinstance(item.get("layers"), list):
                    self.reserve(item["layers"])

    def default_name(self, type_: str) -> str:
        """Return an unused default name: the type in snake case, numbered from the second on."""
        stem = snake_case(type_)
        while True:
            number = self._counts.get(stem, 0)
            self._counts[stem] = number + 1
            name = f"{stem}_{number}" if number else stem
            if name not in self._taken and name not in self.names:
                return name

    def add_layer(self, local: str, name: str) -> None:
        """Add a layer whose local name `local` is `name` in the net."""
        self.names.setdefault(local, name)
        self.above = name
        self.left_out.discard(local)

    def adopt(self, local: str, inner: Namespace, outputs: Mapping[str, str], location: Location) -> None:
        """Add a call or a named group: its layers are `local/…`, its outputs `local` and `local.…`."""
        for name, name_in_net in inner.names.items():
            if name not in inner._inputs:
                self.names.setdefault(f"{local}/{name}", name_in_net)
        for name, inner_outputs in inner.outputs.items():
            self.outputs.setdefault(f"{local}/{name}", inner_outputs)
        self.calls.setdefault(local, location)
        self._set_outputs(local, inner.above, outputs)

    def alias(self, local: str, target: str, location: Location) -> None:
        """Make `local` an alias of `target`: the name of a repeated entry stands for its last repetition."""
        self.calls.setdefault(local, location)
        self._set_outputs(local, self.names.get(target), self.outputs.get(target, {}))

    def _set_outputs(self, local: str, first: str | None, outputs: Mapping[str, str]) -> None:
        if first is not None:
            self.names.setdefault(local, first)
            self.above = first
        if outputs:
            self.outputs.setdefault(local, dict(outputs))

    def find(self, name: str) -> str | None:
        """Return the name in the net of `name`, which may be an output (`call.skip`, `lstm.state_h`), or None."""
        name_in_net = self._exact(name)
        head, dot, output = name.rpartition(".")
        while name_in_net is None and dot:
            outputs = self._outputs(head)
            if outputs:
                return outputs.get(output)
            owner = self._exact(head)
            name_in_net = f"{owner}.{output}" if owner is not None else None
            head, dot, last = head.rpartition(".")
            output = f"{last}.{output}"
        return name_in_net

    def readable(self) -> Iterator[str]:
        """Yield all names that may be read here."""
        for space in self.outward():
            yield from space.names
            yield from (f"{name}.{output}" for name, outputs in space.outputs.items() for output in outputs)

    def direct_names(self) -> list[str]:
        """The readable names of this list, without those inside calls and groups."""
        return [name for name in self.readable() if "/" not in name]

    def is_left_out(self, name: str) -> bool:
        """Whether a layer of that name is left out because its condition is false."""
        return any(name in space.left_out for space in self.outward())

    def is_input(self, name: str) -> bool:
        """Whether an input of the net or of the block has that name."""
        return name in self._inputs

    def mark_incomplete(self) -> None:
        """Record that an entry of this list could not be expanded."""
        for space in self.outward():
            space.complete = False

    def _exact(self, name: str) -> str | None:
        return next((space.names[name] for space in self.outward() if name in space.names), None)

    def _outputs(self, name: str) -> Mapping[str, str]:
        return next((space.outputs[name] for space in self.outward() if name in space.outputs), {})

    def outward(self) -> Iterator[Namespace]:
        """Yield this namespace and those around it, whose names are visible in it."""
        space: Namespace | None = self
        while space is not None:
            yield space
            space = space.parent
