"""What names mean inside a net, a block that is called, or a group: the names that stand there → those in the net."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from netspec.errors import Location
from netspec.schema.specs.names import snake_case
from netspec.schema.yaml.tree import Map


@dataclass
class Namespace:
    """The names that the layers of one list may use, as they come into being from top to bottom."""

    prefix: str = ""
    """What the names of layers made here begin with in the net."""
    block: str | None = None
    """The block whose layers these are, directly or in a group; None for layers of the net itself."""
    parent: Namespace | None = None
    """Of a group: where it stands, whose names it sees too."""
    names: dict[str, str] = field(default_factory=dict)
    """Names as they are written here → names in the net."""
    above: str | None = None
    """The net's name of what a layer without `from` reads."""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of calls with several outputs: those by name."""
    calls: dict[str, Location] = field(default_factory=dict)
    """Names of calls, groups and repetitions, and where these are."""
    left_out: set[str] = field(default_factory=set)
    """Names of layers whose condition is false."""
    whole: bool = True
    """False where something could not be made: then a name that is not found may be of that."""
    _taken: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _inputs: frozenset[str] = frozenset()

    @classmethod
    def reading(cls, inputs: Mapping[str, str], prefix: str = "", block: str | None = None) -> Namespace:
        """The names in a net with these inputs, or in a block that is called with them."""
        first = next(iter(inputs.values()), None)
        return cls(prefix, block, names=dict(inputs), above=first, _taken=set(inputs), _inputs=frozenset(inputs))

    def expect(self, items: Any) -> None:
        """Keep default names off the names that these entries, and those of groups among them, will have."""
        for item in items:
            if isinstance(item, Map):
                name = item.get("name")
                if isinstance(name, str):
                    self._taken.add(name)
                elif isinstance(item.get("layers"), list):
                    self.expect(item["layers"])

    def fresh(self, type_: str) -> str:
        """The default name of a layer: its type in snake case, numbered from the second on."""
        stem = snake_case(type_)
        while True:
            number = self._counts.get(stem, 0)
            self._counts[stem] = number + 1
            name = f"{stem}_{number}" if number else stem
            if name not in self._taken and name not in self.names:
                return name

    def made(self, local: str, name: str) -> None:
        """A layer was made: `local` here is `name` in the net."""
        self.names.setdefault(local, name)
        self.above = name
        self.left_out.discard(local)

    def adopt(self, local: str, inner: Namespace, outputs: Mapping[str, str], place: Location) -> None:
        """A call or a named group was made: what is in it goes by `local/…`, its outputs by `local` and `local.…`."""
        for name, known in inner.names.items():
            if name not in inner._inputs:
                self.names.setdefault(f"{local}/{name}", known)
        for name, several in inner.outputs.items():
            self.outputs.setdefault(f"{local}/{name}", several)
        self.calls.setdefault(local, place)
        self._read(local, inner.above, outputs)

    def alias(self, local: str, one: str, place: Location) -> None:
        """`local` stands for what `one` stands for: a repetition for its last turn."""
        self.calls.setdefault(local, place)
        self._read(local, self.names.get(one), self.outputs.get(one, {}))

    def _read(self, local: str, first: str | None, outputs: Mapping[str, str]) -> None:
        if first is not None:
            self.names.setdefault(local, first)
            self.above = first
        if outputs:
            self.outputs.setdefault(local, dict(outputs))

    def find(self, name: str) -> str | None:
        """The net's name of `name`, which may say an output too (`call.skip`, `lstm.state_h`); None for an unknown."""
        found = self._exact(name)
        head, dot, output = name.rpartition(".")
        while found is None and dot:
            known = self._outputs(head)
            if known:
                return known.get(output)
            owner = self._exact(head)
            found = f"{owner}.{output}" if owner is not None else None
            head, dot, rest = head.rpartition(".")
            output = f"{rest}.{output}"
        return found

    def readable(self) -> Iterator[str]:
        """All names that may be read here."""
        for space in self.outward():
            yield from space.names
            yield from (f"{name}.{output}" for name, known in space.outputs.items() for output in known)

    def near(self) -> list[str]:
        """The names that were given here: what is inside of calls is left out."""
        return [name for name in self.readable() if "/" not in name]

    def is_left_out(self, name: str) -> bool:
        """Whether the name is that of a layer that is not there as its condition is false."""
        return any(name in space.left_out for space in self.outward())

    def is_input(self, name: str) -> bool:
        """Whether the name is that of an input, of the net or of the block."""
        return name in self._inputs

    def broken(self) -> None:
        """Something here could not be made."""
        for space in self.outward():
            space.whole = False

    def _exact(self, name: str) -> str | None:
        return next((space.names[name] for space in self.outward() if name in space.names), None)

    def _outputs(self, name: str) -> Mapping[str, str]:
        return next((space.outputs[name] for space in self.outward() if name in space.outputs), {})

    def outward(self) -> Iterator[Namespace]:
        """This one, and those around it whose names it sees."""
        space: Namespace | None = self
        while space is not None:
            yield space
            space = space.parent
