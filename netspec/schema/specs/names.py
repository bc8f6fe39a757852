"""Default names and sources of layers, losses and metrics, and checks of those that are written.

Both an unvalidated document and a finished `NetSpec` are described by `NamedEntry` objects, into which the defaults are
written.
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
class NamedEntry:
    """The names in a layer, loss or metric; None if the field is not set."""

    type: str
    name: str | None = None
    sources: tuple[str, ...] | None = None
    share: str | None = None
    sample_weight: str | None = None
    """Name of the layer or input by which a loss or metric weighs samples."""
    readable: bool = True
    """False if a name is not text: other checks report it, and nothing is concluded from the entry."""
    outputs: Callable[[], tuple[str, ...] | None] = _one_output
    """Returns the names of the layer's outputs: empty if it has a single output, None if the layer is invalid. Called
    only if another entry reads `layer.output`."""
    compares: bool = True
    """Whether a loss or metric reads a prediction and a target, rather than a single value."""


@dataclass
class NetNames:
    """The names in a net. `check` fills in defaults and reports problems."""

    inputs: list[str]
    layers: list[NamedEntry]
    outputs: tuple[str, ...] | None
    losses: list[NamedEntry]
    metrics: list[NamedEntry]
    readable: bool
    """False if a name could not be read: then unknown names are not reported, because they may be that one."""
    locate: Callable[[Path, bool], Location | None]
    """Returns the location of the value at a path, or with True that of its key."""
    root: Any = None
    """The document in which paths in messages start."""
    prefix: Path = ()
    """The path of the net in that document."""
    problems: list[Problem] = field(default_factory=list)
    _first: dict[str, int] = field(default_factory=dict)
    """Index of the first layer of each name."""

    def check(self) -> None:
        """Fill in defaults, and add problems to `problems`."""
        default_names(self.layers, set(self.inputs))
        for index, layer in enumerate(self.layers):
            self._layer_name(index, layer)
        for index, layer in enumerate(self.layers):
            self._layer(index, layer)
        self._outputs()
        for section, entries in (("losses", self.losses), ("metrics", self.metrics)):
            default_names(entries, set())
            self._losses_or_metrics(section, entries)

    def _add(self, message: str, path: Path, **facts: Any) -> None:
        text = dotted(self.root, (*self.prefix, *path)) if self.root is not None else ".".join(map(str, path))
        self.problems.append(Problem(message, self.locate(path, False), text, **facts))

    def _layer_name(self, index: int, layer: NamedEntry) -> None:
        name = layer.name
        if name is None:
            return
        path: Path = ("layers", index, "name")
        if name in self.inputs:
            location = self.locate(("inputs", name), True)
            self._add(
                f"the layer `{name}` has the name of an input",
                path,
                expected="a different name",
                notes=_location_note("the input is declared", location),
            )
        elif name in self._first:
            location = self.locate(("layers", self._first[name], "name"), False)
            itself = location is not None and location == self.locate(path, False)
            hint = "give the group a `name`, or let this one use `${index}`" if itself else None
            self._add(
                f"two layers are called `{name}`", path, expected=None if hint else "a different name", hint=hint,
                notes=_location_note("the first is", location),
            )  # fmt: skip
        self._first.setdefault(name, index)

    def _layer(self, index: int, layer: NamedEntry) -> None:
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
                location = None if itself else self.locate(("layers", first), False)
                self._add(
                    f"the layer reads {'itself' if itself else f'`{source}`, which comes later'}",
                    path,
                    expected=f"one of {listing(self._readable(index))}",
                    hint="layers must come after those they read",
                    notes=_location_note(f"`{owner}` is", location),
                )
            elif output is not None:
                self._output(owner, output, path)

    def _owner(self, name: str) -> tuple[str, str | None]:
        """Split a source into the layer or input and the name of an output, None if it names no output.

        A source that is exactly the name of a layer or input is that; else an output's name follows the last dot.
        """
        owner, dot, output = name.rpartition(".")
        if name in self.inputs or name in self._first or not dot:
            return name, None
        return (owner, output) if owner in self.inputs or owner in self._first else (name, None)

    def _output(self, owner: str, output: str, path: Path) -> None:
        """Report a missing output of `owner`, a layer or input."""
        outputs = () if owner in self.inputs else self.layers[self._first[owner]].outputs()
        if outputs is None or output in outputs:
            return
        names = [f"{owner}.{name}" for name in outputs]
        kind = "input" if owner in self.inputs else "layer"
        self._add(
            f"the layer `{owner}` has no output `{output}`"
            if outputs
            else f"the {kind} `{owner}` has no named outputs",
            path,
            expected=f"one of {listing(names)}" if outputs else f"`{owner}`",
            got=None if outputs else f"`{owner}.{output}`",
            hint=did_you_mean(f"{owner}.{output}", names),
        )

    def _share(self, index: int, layer: NamedEntry, owner: str) -> None:
        path: Path = ("layers", index, "share")
        first = self._first.get(owner)
        same_type = [other.name for other in self.layers[:index] if other.type == layer.type and other.name is not None]
        expected = f"an earlier layer of the type {layer.type}" + (f": {listing(same_type)}" if same_type else "")
        if first is None:
            if self.readable:
                message = f"`share`: there is no layer named `{owner}`"
                self._add(message, path, expected=expected, hint=did_you_mean(owner, self._first.keys() - {layer.name}))
        elif first >= index:
            message = "a layer cannot share its own parameters" if first == index else f"`{owner}` comes later"
            self._add(message, path, expected=expected)
        elif layer.type and self.layers[first].type and self.layers[first].type != layer.type:
            got = f"`{owner}` is of the type {self.layers[first].type}"
            self._add("only layers of the same type can share parameters", path, expected=expected, got=got)

    def _readable(self, index: int) -> list[str]:
        """Names that the layer at `index` may read."""
        names = [*self.inputs, *(layer.name for layer in self.layers[:index] if layer.name is not None)]
        return list(dict.fromkeys(names))

    def _unknown(self, name: str, path: Path, names: Sequence[str]) -> None:
        if self.readable:
            self._add(
                f"there is no layer or input named `{name}`",
                path,
                expected=f"one of {listing(names)}",
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
                self._add(f"the output `{name}` is given twice", path, expected="each output once")
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

    def _losses_or_metrics(self, section: str, entries: list[NamedEntry]) -> None:
        """Check the names and sources of losses or metrics."""
        value_names = [*self.inputs, *self._first]
        names: dict[str, int] = {}
        for index, entry in enumerate(entries):
            if entry.name is not None:
                first = names.setdefault(entry.name, index)
                if first != index:
                    location = self.locate((section, first), False)
                    message = f"two {section} are called `{entry.name}`"
                    self._add(
                        message, (section, index, "name"), expected="a different name",
                        notes=_location_note("the first is", location),
                    )  # fmt: skip
            if entry.sources is None and entry.readable and self.readable:
                entry.sources = self._compared(section, index)
            entry_path: Path = (section, index)
            reads = [
                (source, _from_path(entry_path, position, entry)) for position, source in enumerate(entry.sources or ())
            ]
            reads += [(entry.sample_weight, (*entry_path, "sample_weight"))] if entry.sample_weight is not None else []
            for source, path in reads:
                owner, output = self._owner(source)
                if output is not None:
                    self._output(owner, output, path)
                elif source not in value_names:
                    self._unknown(source, path, value_names)

    def _compared(self, section: str, index: int) -> tuple[str, ...] | None:
        """Return the last output and the one input that is not read; None, with a problem, if that is not one input."""
        kind, entry = {"losses": "loss", "metrics": "metric"}[section], getattr(self, section)[index]
        if not entry.compares:
            self._add(
                f"this {kind} does not name its input", (section, index), expected="`from: NAME`, a layer or input"
            )
            return None
        read = {source for layer in self.layers for source in layer.sources or ()}
        read |= {other.sample_weight for other in (*self.losses, *self.metrics) if other.sample_weight is not None}
        unread = [name for name in self.inputs if name not in read]
        if len(unread) == 1 and self.outputs:
            return (self.outputs[-1], unread[0])
        self._add(
            f"`from` is missing: it names what this {kind} compares",
            (section, index),
            expected="`from: [prediction, target]`",
            got=f"several inputs that no layer reads: {listing(unread)}"
            if unread
            else "layers read all inputs, so none can be the target",
            hint=None if unread else "declare an input for the target, such as `label: {shape: [], dtype: int32}`",
        )
        return None


def _from_path(path: Path, position: int, entry: NamedEntry) -> Path:
    return (*path, "from", position) if len(entry.sources or ()) > 1 else (*path, "from")


def _location_note(subject: str, location: Location | None) -> tuple[str, ...]:
    return (f"{subject} at {location}",) if location else ()


def default_names(entries: Sequence[NamedEntry], used: set[str]) -> None:
    """Give each entry without a name its type in snake case, numbered from the second on, around names in use."""
    used = used | {entry.name for entry in entries if entry.name is not None}
    counts: dict[str, int] = {}
    for entry in entries:
        if entry.name is not None or not entry.readable or not entry.type:
            continue
        stem = snake_case(entry.type)
        while True:
            number = counts.get(stem, 0)
            counts[stem] = number + 1
            name = f"{stem}_{number}" if number else stem
            if name not in used:
                break
        entry.name = name
        used.add(name)


def snake_case(name: str) -> str:
    """A type's name in snake case, by Keras's rule: `MaxPooling2D` → `max_pooling2d`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
