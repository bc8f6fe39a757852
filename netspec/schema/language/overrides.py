"""Changes to a document from the command line (`solver.learning_rate=0.1`, `~train.max_epochs`) or from Python.

They are applied before expressions are evaluated, so that `vars.width=64` changes all values that use it. A path
consists of keys of mappings and, for lists, of the `name` or index of an item; if keys or names contain dots, the
longest that exists is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.errors import Location, Problem, SpecError, did_you_mean, listing
from netspec.schema.yaml.python_data import PYTHON, located, python_location
from netspec.schema.yaml.reader import build
from netspec.schema.yaml.scalars import DECIMAL
from netspec.schema.yaml.tree import Map, Seq

COMMAND_LINE = "<command line>"

_TAGS = ("type", "source", "strategy")


@dataclass(frozen=True)
class Override:
    """One change: a path, and its new value or its removal."""

    path: tuple[str, ...]
    value: Any
    location: Location
    """The location of the value; `location.text` is the whole override."""
    remove: bool = False

    @property
    def key_location(self) -> Location:
        """The location of the path; for an override from a file, as in a search, the location of the value."""
        if self.location.file not in (COMMAND_LINE, PYTHON):
            return self.location
        return Location(self.location.file, self.location.line, 1, self.location.text)


def parse_overrides(arguments: Sequence[str], first: int = 1) -> list[Override]:
    """Parse the overrides of a command line, numbered from `first`. Raises `SpecError` with all problems."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for line, argument in enumerate(arguments, first):
        try:
            overrides.append(_parse(argument, line))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return overrides


def _parse(argument: str, line: int) -> Override:
    location = Location(COMMAND_LINE, line, 1, argument)
    remove = argument.startswith("~")
    path, sign, text = argument.removeprefix("~").partition("=")
    words = tuple(path.strip().split("."))
    if not all(words) or (remove and sign) or (not remove and not sign):
        raise SpecError(
            f"invalid override `{argument}`",
            location=location,
            expected="`key.key=value`, or `~key.key` to remove a key",
            hint=f"write `~{path}`, without a value" if remove and sign else None,
        )
    column = len(argument) - len(text) + 1
    value_location = Location(COMMAND_LINE, line, column, argument)
    return Override(
        words, None if remove else _value(text, value_location), value_location if sign else location, remove
    )


def _value(text: str, location: Location) -> Any:
    def at(line: int, column: int) -> Location:
        # An argument is one line: all lines of a value with line breaks are at the start of the value.
        return location if line else Location(location.file, location.line, location.column + column, location.text)

    flow = text.lstrip()[:1] in ("[", "{", '"', "'")
    try:
        value = build(text, at)
    except SpecError:
        if flow or DECIMAL.match(text.strip()):  # a number that is too large
            raise
        return text  # text such as `Note: a: b`, which needs no quotes here
    return value if flow or not isinstance(value, (Map, Seq)) else text


def overrides_from_mapping(mapping: Mapping[str, Any]) -> list[Override]:
    """Convert overrides given in Python: `{"solver": {"learning_rate": 0.1}}` or `{"solver.learning_rate": 0.1}`.

    A mapping changes the keys it contains and leaves the others; a mapping with a `type` (`source`, `strategy`)
    replaces the whole value. Dots in keys of nested mappings do not separate keys.
    """
    overrides: list[Override] = []
    for key, value in mapping.items():
        path = tuple(key.split("."))
        for below, leaf in _leaves(value, path):
            location = python_location(".".join(below), leaf, len(overrides) + 1)
            overrides.append(Override(below, located(leaf, location), location))
    return overrides


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value and not any(tag in value for tag in _TAGS):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    else:
        yield path, value


def apply_overrides(tree: Map, overrides: Sequence[str | Override], blocks: Collection[str] = ()) -> list[Problem]:
    """Apply the changes to `tree`, in order; return the problems of those that are invalid.

    `blocks` are the keys of optional mappings: they are created if a path leads into them. Command-line texts that
    are not overrides raise `SpecError`.
    """
    texts = parse_overrides([item for item in overrides if isinstance(item, str)])
    remaining = iter(texts)
    problems: list[Problem] = []
    for override in [next(remaining) if isinstance(item, str) else item for item in overrides]:
        try:
            _apply(tree, override, blocks)
        except SpecError as error:
            problems += error.problems
    return problems


def value_at(tree: Map, path: Sequence[str]) -> Any:
    """Return the value that an override of this path would replace. Raises `KeyError` if the document has none."""
    holder: Any = tree
    words = tuple(path)
    while words:
        step, used = _step(holder, words)
        if step is None:
            raise KeyError(".".join(path))
        holder, words = holder[step], words[used:]
    return holder


def is_of_missing_layer(net: Map, path: Sequence[str]) -> bool:
    """Whether a path leads to a layer that a net's document does not contain (yet, if it is not expanded)."""
    layers = net.get("layers")
    return (
        len(path) > 1 and path[0] == "layers" and isinstance(layers, Seq) and _step(layers, tuple(path[1:]))[0] is None
    )


def _apply(tree: Map, override: Override, blocks: Collection[str]) -> None:
    words = override.path
    if words[0] in blocks and tree.get(words[0]) is None and len(words) > 1 and not override.remove:
        tree.put(words[0], Map(override.key_location), override.key_location, override.key_location)
    holder: Any = tree
    walked: tuple[str, ...] = ()
    while True:
        step, used = _step(holder, words)
        if used == len(words) or step is None:
            break
        walked, words, holder = (*walked, *words[:used]), words[used:], holder[step]
    name = ".".join(words)
    if isinstance(holder, Map):
        if step is None and (override.remove or len(words) > 1):
            absent = [] if walked or override.remove else [key for key in blocks if key not in holder]
            raise _missing(override, words[0], walked, [*holder, *absent], "key")
        key = name if step is None else str(step)
        if override.remove:
            holder.remove(key)
        else:
            holder.put(key, override.value, holder.key_at.get(key, override.key_location), override.location)
    elif isinstance(holder, Seq):
        if step is None:
            names = [item["name"] for item in holder if isinstance(item, Map) and isinstance(item.get("name"), str)]
            raise _missing(override, words[0], walked, names, "item", len(holder))
        index = int(step)
        if override.remove:
            del holder[index], holder.value_at[index]
        else:
            holder[index], holder.value_at[index] = override.value, override.location
    else:
        raise SpecError(
            f"`{'.'.join(walked)}` has no keys: it is {_kind(holder)}",
            location=override.key_location,
            path=".".join(override.path),
            expected="a path to a value in a mapping or a list",
            hint=f"replace the value: `{'.'.join(walked)}={{{name}: …}}`" if not override.remove else None,
        )


def _step(holder: Any, words: tuple[str, ...]) -> tuple[str | int | None, int]:
    """Return the key or index in `holder` that the longest prefix of `words` names, and the length of the prefix."""
    if isinstance(holder, Map):
        steps: dict[str, str | int] = {key: key for key in holder}
    elif isinstance(holder, Seq):
        steps = {str(index): index for index in range(len(holder))}
        for index in reversed(range(len(holder))):
            name = holder[index].get("name") if isinstance(holder[index], Map) else None
            if isinstance(name, str):
                steps[name] = index
    else:
        return None, 0
    for count in range(len(words), 0, -1):
        step = steps.get(".".join(words[:count]))
        if step is not None:
            return step, count
    return None, 0


def _missing(
    override: Override, word: str, walked: tuple[str, ...], names: list[str], kind: str, count: int | None = None
) -> SpecError:
    container = f" in `{'.'.join(walked)}`" if walked else ""
    expected = f"one of {listing(names, hint=did_you_mean(word, names))}" if names else None
    if count is not None:
        positions = _positions(count)
        expected = f"{expected}, or {positions}" if expected else positions
    hint = did_you_mean(word, names)
    index = re.fullmatch(r"([^\[\]]+)((?:\[[^\[\]]+\])+)", word)
    if index:
        hint = f"an item of a list comes after a dot: `{'.'.join((*walked, *re.findall(r'[^][]+', word)))}`"
    if hint is None and count is None and not override.remove:
        hint = f"a new mapping is set as a whole: `{'.'.join((*walked, word))}={{…}}`"
    return SpecError(
        f"no {kind} `{word}`{container}",
        location=override.key_location,
        path=".".join(override.path),
        expected=expected,
        hint=hint,
    )


def _positions(count: int) -> str:
    if count > 1:
        return f"an index from 0 to {count - 1}"
    return "index 0" if count else "nothing: the list is empty"


def _kind(value: Any) -> str:
    return "nothing (null)" if value is None else f"the value {value!r}"
