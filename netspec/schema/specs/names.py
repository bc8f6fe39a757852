"""Checking and filling in the names of a net: what is called what, and who reads whom.

It works on `Entry` objects, so that a raw document and a finished `NetSpec` go the same way; the defaults are written
into the entries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.yaml.tree import Path, dotted


def _one_output() -> tuple[str, ...] | None:
    return ()


@dataclass
class Entry:
    """What a layer, loss or metric says of names; None where it says nothing."""

    type: str
    name: str | None = None
    sources: tuple[str, ...] | None = None
    share: str | None = None
    sample_weight: str | None = None
    """What a loss or metric weighs samples by."""
    readable: bool = True
    """False where a name is not even text: that is reported elsewhere, and nothing is concluded from the entry."""
    outputs: Callable[[], tuple[str, ...] | None] = _one_output
    """Names of the layer's outputs, empty for one that has a single output; None where they cannot be known, because
    the layer is wrong. Asked only where somebody reads `layer.output`."""
    compares: bool = True
    """Whether a loss or metric reads a prediction and a target, rather than a single value."""


@dataclass
class Names:
    """The names in a net."""

    inputs: list[str]
    layers: list[Entry]
    outputs: tuple[str, ...] | None
    losses: list[Entry]
    metrics: list[Entry]
    readable: bool
    """False where some name could not be read: then a name that is not found may be that one."""
    place: Callable[[Path, bool], Location | None]
    """Where the value at a path (with True: its key) is written."""
    root: Any = None
    """The document that paths in messages start from, and the way from there to the net."""
    prefix: Path = ()
    problems: list[Problem] = field(default_factory=list)
    _first: dict[str, int] = field(default_factory=dict)

    def check(self) -> None:
        """Fill in what is not said, and collect in `problems` what can't be right."""
        default_names(self.layers, set(self.inputs))
        for index, layer in enumerate(self.layers):
            self._layer_name(index, layer)
        for index, layer in enumerate(self.layers):
            self._layer(index, layer)
        self._outputs()
        for section, entries in (("losses", self.losses), ("metrics", self.metrics)):
            default_names(entries, set())
            self._judges(section, entries)

    def _add(self, message: str, path: Path, **facts: Any) -> None:
        text = dotted(self.root, (*self.prefix, *path)) if self.root is not None else ".".join(map(str, path))
        self.problems.append(Problem(message, self.place(path, False), text, **facts))

    def _layer_name(self, index: int, layer: Entry) -> None:
        name = layer.name
        if name is None:
            return
        path: Path = ("layers", index, "name")
        if name in self.inputs:
            there = self.place(("inputs", name), True)
            self._add(f"the layer `{name}` has the name of an input", path, notes=_at("the input is declared", there))
        elif name in self._first:
            there = self.place(("layers", self._first[name], "name"), False)
            itself = there is not None and there == self.place(path, False)
            hint = "give the group a `name`, or let this one use `${index}`" if itself else None
            self._add(f"two layers are called `{name}`", path, hint=hint, notes=_at("the first is", there))
        self._first.setdefault(name, index)

    def _layer(self, index: int, layer: Entry) -> None:
        if layer.share is not None:
            self._share(index, layer, layer.share)
        if layer.sources is None:
            if layer.readable:
                above = self.layers[index - 1].name if index else next(iter(self.inputs), None)
                layer.sources = (above,) if above is not None else None
            return
        for position, source in enumerate(layer.sources):
            path = _from_path(("layers", index), position, layer)
            owner, output = self._owner(source)
            if owner in self.inputs and output is None:
                continue
            first = self._first.get(owner)
            if first is None and output is None:
                self._unknown(source, path, self._readable(index))
            elif first is not None and first >= index:
                itself = first == index
                there = None if itself else self.place(("layers", first), False)
                self._add(
                    f"the layer reads itself, `{source}`" if itself else f"`{source}` comes later",
                    path,
                    expected=f"one of {listing(self._readable(index))}",
                    hint="layers must come after those they read",
                    notes=_at(f"`{owner}` is", there),
                )
            elif output is not None:
                self._output(owner, output, path)

    def _owner(self, name: str) -> tuple[str, str | None]:
        """The layer or input that a name reads, and which of its outputs where it says so.

        The exact name of a layer or input is that; else what follows the last dot is the name of an output.
        """
        owner, dot, output = name.rpartition(".")
        if name in self.inputs or name in self._first or not dot:
            return name, None
        return (owner, output) if owner in self.inputs or owner in self._first else (name, None)

    def _output(self, owner: str, output: str, path: Path) -> None:
        """Note it where `owner`, a layer or an input, has no output of that name."""
        known = () if owner in self.inputs else self.layers[self._first[owner]].outputs()
        if known is None or output in known:
            return
        names = [f"{owner}.{one}" for one in known]
        what = "input" if owner in self.inputs else "layer"
        self._add(
            f"the layer `{owner}` has no output `{output}`" if known else f"the {what} `{owner}` has no named outputs",
            path,
            expected=f"one of {listing(names)}" if known else f"`{owner}`",
            got=None if known else f"`{owner}.{output}`",
            hint=did_you_mean(f"{owner}.{output}", names),
        )

    def _share(self, index: int, layer: Entry, owner: str) -> None:
        path: Path = ("layers", index, "share")
        first = self._first.get(owner)
        alike = [one.name for one in self.layers[:index] if one.type == layer.type and one.name is not None]
        expected = f"an earlier layer of the type {layer.type}" + (f": {listing(alike)}" if alike else "")
        if first is None:
            if self.readable:
                message = f"`share`: there is no layer named `{owner}`"
                self._add(message, path, expected=expected, hint=did_you_mean(owner, self._first.keys() - {layer.name}))
        elif first >= index:
            message = "a layer can't share its own parameters" if first == index else f"`{owner}` comes later"
            self._add(message, path, expected=expected)
        elif layer.type and self.layers[first].type and self.layers[first].type != layer.type:
            got = f"`{owner}` is of the type {self.layers[first].type}"
            self._add("parameters are shared by layers of one type", path, expected=expected, got=got)

    def _readable(self, index: int) -> list[str]:
        """What the layer at `index` may read."""
        names = [*self.inputs, *(one.name for one in self.layers[:index] if one.name is not None)]
        return list(dict.fromkeys(names))

    def _unknown(self, name: str, path: Path, known: Sequence[str]) -> None:
        if self.readable:
            self._add(
                f"there is no layer or input named `{name}`",
                path,
                expected=f"one of {listing(known)}",
                hint=did_you_mean(name, [*self.inputs, *self._first]),
            )

    def _outputs(self) -> None:
        if self.outputs is None:
            last = self.layers[-1].name if self.layers else None
            self.outputs = (last,) if last is not None else ()
            return
        for position, name in enumerate(self.outputs):
            path: Path = ("outputs", position) if len(self.outputs) > 1 else ("outputs",)
            if name in self.outputs[:position]:
                self._add(f"the output `{name}` is given twice", path)
                continue
            owner, output = self._owner(name)
            if owner in self.inputs:
                self._add(f"`{owner}` is an input", path, expected="names of layers")
            elif output is not None:
                self._output(owner, output, path)
            elif name not in self._first and self.readable:
                hint = did_you_mean(name, self._first)
                self._add(
                    f"there is no layer named `{name}`",
                    path,
                    expected=f"one of {listing(list(self._first))}",
                    hint=hint,
                )

    def _judges(self, section: str, entries: list[Entry]) -> None:
        """Losses or metrics: their names, and what they compare."""
        known = [*self.inputs, *self._first]
        names: dict[str, int] = {}
        for index, entry in enumerate(entries):
            if entry.name is not None:
                first = names.setdefault(entry.name, index)
                if first != index:
                    there = self.place((section, first), False)
                    message = f"two {section} are called `{entry.name}`"
                    self._add(message, (section, index, "name"), notes=_at("the first is", there))
            if entry.sources is None and entry.readable and self.readable:
                entry.sources = self._compared(section, index)
            here: Path = (section, index)
            reads = [(source, _from_path(here, place, entry)) for place, source in enumerate(entry.sources or ())]
            reads += [(entry.sample_weight, (*here, "sample_weight"))] if entry.sample_weight is not None else []
            for source, path in reads:
                owner, output = self._owner(source)
                if output is not None:
                    self._output(owner, output, path)
                elif source not in known:
                    self._unknown(source, path, known)

    def _compared(self, section: str, index: int) -> tuple[str, ...] | None:
        """The last output and the one input that nothing reads; None, and a problem, where that isn't one."""
        what, entry = {"losses": "loss", "metrics": "metric"}[section], getattr(self, section)[index]
        if not entry.compares:
            self._add(
                f"this {what} does not name its input", (section, index), expected="`from: NAME`, a layer or input"
            )
            return None
        read = {source for layer in self.layers for source in layer.sources or ()}
        read |= {judge.sample_weight for judge in (*self.losses, *self.metrics) if judge.sample_weight is not None}
        unread = [name for name in self.inputs if name not in read]
        if len(unread) == 1 and self.outputs:
            return (self.outputs[-1], unread[0])
        self._add(
            f"`from` is missing: it says what this {what} compares",
            (section, index),
            expected="`from: [prediction, target]`",
            got=f"several inputs that no layer reads: {listing(unread)}" if unread else "no input that no layer reads",
            hint=None if unread else "declare an input for the target, such as `label: {shape: [], dtype: int32}`",
        )
        return None


def _from_path(path: Path, position: int, entry: Entry) -> Path:
    return (*path, "from", position) if len(entry.sources or ()) > 1 else (*path, "from")


def _at(what: str, place: Location | None) -> tuple[str, ...]:
    return (f"{what} at {place}",) if place else ()


def default_names(entries: Sequence[Entry], taken: set[str]) -> None:
    """Give each entry without a name its type in snake case, numbered from the second on, around names in use."""
    taken = taken | {entry.name for entry in entries if entry.name is not None}
    counts: dict[str, int] = {}
    for entry in entries:
        if entry.name is not None or not entry.readable or not entry.type:
            continue
        stem = snake_case(entry.type)
        while True:
            number = counts.get(stem, 0)
            counts[stem] = number + 1
            name = f"{stem}_{number}" if number else stem
            if name not in taken:
                break
        entry.name = name
        taken.add(name)


def snake_case(name: str) -> str:
    """A type's name in snake case, by Keras's rule: `MaxPooling2D` → `max_pooling2d`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
