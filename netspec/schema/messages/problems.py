"""pydantic's findings → problems in the words of YAML, each at its place in the file.

Fields that take several types yield one problem for one value; the unknown name that stands for a missing field yields
one too; the errors of nested registry members are placed in the document they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.language.interpolation import inside
from netspec.schema.messages.pydantic_messages import finding
from netspec.schema.specs.annotations import fields_by_name, is_union, members, step_into
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.spec import Spec, describe
from netspec.schema.yaml.tree import Map, Path, Seq, dotted, locate

_COMMON = frozenset({"type", "source", "name", "from", "batch_size"})
"""Fields that tell nothing of the class that has them."""
_DOCUMENTS = {"NetSpec": "a net", "TrainSpec": "a training", "PartSpec": "an included file"}
TYPE_ERRORS = frozenset({"is_instance_of", "literal_error", "netspec_type", "none_required"})


def is_type_error(kind: str) -> bool:
    """Whether an error of pydantic says that a value is of another type, rather than out of bounds."""
    return kind.endswith("_type") or kind in TYPE_ERRORS


@dataclass(frozen=True)
class Frame:
    """Where a validation error is to be placed: the document, and the part of it that was validated."""

    root: Any
    prefix: Path
    tree: Any
    cls: type[Spec]
    place: Location | None
    """The place of the part as a whole; what has no place of its own gets it."""

    def at(self, path: Path, *, key: bool = False) -> Location | None:
        """The place of `path` in the part."""
        return (locate(self.tree, path, key=key)[0] if isinstance(self.tree, (Map, Seq)) else None) or self.place

    def path(self, path: Path) -> str:
        """`path` as text, from the top of the document."""
        return dotted(self.root, (*self.prefix, *path))


@dataclass(frozen=True)
class Finding:
    """One error of pydantic, its path freed of union tags, and the union (if any) that it is a branch of."""

    error: ErrorDetails
    path: Path
    union: tuple[int, str] | None
    """How long the path to the union is, and the branch's tag."""
    cls: type[Spec]
    """The class of the innermost spec that the path's last step is a field of."""
    inner: int
    """How long the path to that spec is."""
    on_key: bool
    annotation: Any
    """The type that the value at the path should have; None where it is not known."""


def problems_of(error: ValidationError, tree: Any, cls: type[Spec], place: Location | None = None) -> list[Problem]:
    """All that a failed validation of `tree` as a `cls` found."""
    return _problems(error, Frame(tree, (), tree, cls, place))


def _problems(error: ValidationError, frame: Frame) -> list[Problem]:
    return _told([_finding(details, frame) for details in error.errors(include_url=False)], frame)


def _told(findings: list[Finding], frame: Frame) -> list[Problem]:
    unions: dict[Path, list[Finding]] = {}
    problems: list[Problem] = []
    for found in findings:
        if found.union:
            unions.setdefault(found.path[: found.union[0]], []).append(found)
        elif found.error["type"] != "missing":
            problems += _one(found, frame)
    for path, branches in unions.items():
        problems += _union(path, branches, frame)
    for found in findings:
        if found.error["type"] == "missing" and not found.union and not _replaced(found, findings, frame):
            problems += _one(found, frame)
    return problems


def _finding(error: ErrorDetails, frame: Frame) -> Finding:
    """Walk the error's path through the class's annotations: they tell its steps from the tags of unions."""
    annotation: Any = frame.cls
    cls, inner = frame.cls, 0
    path: list[str | int] = []
    union: tuple[int, str] | None = None
    steps = list(error["loc"])
    on_key = bool(steps) and steps[-1] == "[key]"
    for step in steps[:-1] if on_key else steps:
        if is_union(annotation) and union is None:
            union = (len(path), str(step))
            continue
        if isinstance(annotation, type) and issubclass(annotation, Spec):
            cls, inner = annotation, len(path)
        path.append(step)
        annotation = step_into(annotation, step)
    return Finding(error, tuple(path), union, cls, inner, on_key, annotation)


def _replaced(missing: Finding, findings: list[Finding], frame: Frame) -> bool:
    """Whether the missing field is there under a wrong name, which is a problem already."""
    field = f"`{missing.path[-1]}`"
    unknown = (one for one in findings if one.error["type"] == "extra_forbidden" and one.path[:-1] == missing.path[:-1])
    return any(field in (_unknown_hint(one) or "") for one in unknown)


def _one(found: Finding, frame: Frame) -> list[Problem]:
    error, path = found.error, found.path
    context: Mapping[str, Any] = error.get("ctx") or {}
    match error["type"]:
        case "nested":
            data = context["data"]
            below = data if isinstance(data, (Map, Seq)) else None
            inside = Frame(frame.root, (*frame.prefix, *path), below, context["cls"], frame.at(path))
            guessed = context.get("guessed")
            if guessed is None:
                return _problems(context["error"], inside)
            return [_from_validator(guessed, path, frame), *_of_guess(context["error"], inside, guessed["hint"])]
        case "netspec" | "netspec_type":
            return [_from_validator(context, path, frame)]
        case "extra_forbidden":
            return [_unknown_field(found, frame)]
        case "missing":
            return [_missing(found, frame)]
    said = finding(error, _called(path, frame), context)
    place = frame.at(path, key=found.on_key)
    expected = _mapping_words(found) if error["type"].startswith("model_") else said.expected
    hint = _hint_for_expression(error, said.hint) if _is_expression(place) else said.hint
    return [Problem(said.message, place, frame.path(path), expected, said.got, hint)]


def _from_validator(facts: Mapping[str, Any], path: Path, frame: Frame) -> Problem:
    """The problem that one of our own validators told of the value at `path`, or of a field in it."""
    field = facts.get("field")
    below = (*path, *_steps(field)) if field else path
    text: str = facts["text"]
    if text.startswith("not ") and path:
        text = f"{_called(path, frame)} is {text}"
    expected, got, hint = (facts.get(name) for name in ("expected", "got", "hint"))
    place, there = frame.at(below), facts.get("inside")
    if place is not None and there is not None:
        written, offset = there
        place = inside(place, written, 0, offset)
    return Problem(text, place, frame.path(below), expected, got, hint)


def _of_guess(error: ValidationError, frame: Frame, hint: str) -> list[Problem]:
    """Find the problems besides an unknown type, assuming the class that the hint names.

    Nothing where the fields speak for another class: some are strange to it, and none is its own. Fields that the hint
    says how to write are not missed.
    """
    findings = [_finding(details, frame) for details in error.errors(include_url=False)]
    strange = [found for found in findings if found.error["type"] == "extra_forbidden" and len(found.path) == 1]
    own = set(fields_by_name(frame.cls)) - _COMMON
    if any(_unknown_hint(found) is None for found in strange) and not (
        own & set(frame.tree or ()) or any(map(_unknown_hint, strange))
    ):
        return []
    missed = (found for found in findings if found.error["type"] == "missing" and len(found.path) == 1)
    told = [found for found in missed if f"`{found.path[0]}: " in hint]
    return _told([found for found in findings if found not in told], frame)


def _mapping_words(found: Finding) -> str:
    """What a mapping of a spec class looks like: the fields that it needs, or else some that it may have."""
    cls = next((one for one in members(found.annotation) if isinstance(one, type) and issubclass(one, Spec)), Spec)
    needed = [name for name, field in fields_by_name(cls).items() if field.is_required()]
    if needed:
        return f"a mapping such as `{{{', '.join(f'{name}: …' for name in needed)}}}`"
    return f"a mapping with some of {listing(list(fields_by_name(cls)))}"


def _is_expression(place: Location | None) -> bool:
    """Whether an expression stands at the place: then the value is its result, and not what is written."""
    return place is not None and re.match(r"""["']?[^"'\s]*\$\{""", place.text[place.column - 1 :]) is not None


def _hint_for_expression(error: ErrorDetails, hint: str | None) -> str | None:
    value = error["input"]
    if error["type"] == "int_type" and isinstance(value, float):
        return "`//` gives a whole number, and so does `int(…)`"
    if error["type"] in ("int_type", "float_type") and isinstance(value, str):
        return "only a text that is one `${…}` and nothing else gives a number"
    return hint


def _steps(field: str) -> Path:
    return tuple(int(word) if word.isdigit() else word for word in field.split("."))


def _called(path: Path, frame: Frame) -> str:
    """What to call the value at `path` in a message: its field, with the position where it is an item."""
    start = max((index for index, step in enumerate(path) if isinstance(step, str)), default=0)
    words = [str(step) for step in path[start:]]
    return f"`{'.'.join(words)}`" if words else f"`{frame.path(())}`" if frame.prefix else "the document"


def _owner(found: Finding, frame: Frame) -> str:
    """What to call the spec that a field belongs to."""
    for tag in ("type", "source"):
        default = found.cls.model_fields[tag].default if tag in found.cls.model_fields else None
        if isinstance(default, str) and default:
            return f"`{default}`"
    path = frame.path(found.path[: found.inner])
    return f"`{path}`" if path else _DOCUMENTS.get(found.cls.__name__, "this")


def _unknown_hint(found: Finding) -> str | None:
    name = str(found.path[-1])
    known = fields_by_name(found.cls)
    before, colon, after = name.partition(":")
    if colon and before in known:
        return f"`{before}` needs a space after its `:`: write `{before}: {after}`"
    for cls in found.cls.__mro__:
        told: str | None = cls.__dict__.get("foreign_fields", {}).get(name)
        if told is None:
            continue
        promised = re.findall(r"`(\w+)`", told.partition("here it is")[2])
        if not promised or any(field in known for field in promised):
            return told
    return did_you_mean(name, known)


def _unknown_field(found: Finding, frame: Frame) -> Problem:
    known = list(fields_by_name(found.cls))
    return Problem(
        f"{_owner(found, frame)} has no field `{found.path[-1]}`",
        frame.at(found.path, key=True),
        frame.path(found.path),
        expected=f"one of {listing(known)}",
        hint=_unknown_hint(found),
    )


def _missing(found: Finding, frame: Frame) -> Problem:
    name = str(found.path[-1])
    meaning = _first_sentence(field_docs(found.cls).get(name, ""))
    return Problem(
        f"{_owner(found, frame)} needs `{name}`, which is missing",
        frame.at(found.path[:-1]),
        frame.path(found.path),
        expected=_written(name, fields_by_name(found.cls)[name].annotation) + (f" ({meaning})" if meaning else ""),
        hint="write `netspec: 1` on the first line" if name == "netspec" else None,
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence of a field's documentation as a phrase: without its capital letter and full stop."""
    sentence = " ".join(text.split()).split(". ")[0].removesuffix(".")
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _written(name: str, annotation: Any) -> str:
    """How a field is written: with the values that it may have, where they are few."""
    (kind, *others) = members(annotation)
    choices: tuple[Any, ...] = (True, False) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
    if others or not 0 < len(choices) <= 4:  # more do not fit on a line
        return f"`{name}: …`"
    words = [str(one).lower() if isinstance(one, bool) else str(one) for one in choices]
    return " or ".join(f"`{name}: {word}`" for word in words)


def _union(path: Path, branches: list[Finding], frame: Frame) -> list[Problem]:
    """One value that fits none of several types: the findings of the type that was meant, or one for all."""
    value: Any = frame.tree
    by_tag: dict[str, list[Finding]] = {}
    for found in branches:
        assert found.union is not None
        by_tag.setdefault(found.union[1], []).append(found)
        if len(found.path) == len(path):
            value = found.error["input"]
    meant = [
        group
        for group in by_tag.values()
        if not any(len(one.path) == len(path) and is_type_error(one.error["type"]) for one in group)
    ]
    if meant and not _is_quoted_number(value, branches):
        return [problem for one in meant[0] for problem in _one(one, frame)]
    said = [finding(group[0].error, _called(path, frame), group[0].error.get("ctx") or {}) for group in by_tag.values()]
    plain = [one for one in said if one.expected]
    expected = " or ".join(dict.fromkeys(str(one.expected) for one in plain))
    hint = next((one.hint for one in plain if one.hint and not (one.expected or "").startswith("a list")), None)
    called = _called(path, frame)
    return [
        Problem(
            f"{called} is not of a type that it takes",
            frame.at(path),
            frame.path(path),
            expected,
            describe(value),
            hint,
        )
    ]


def _is_quoted_number(value: Any, branches: list[Finding]) -> bool:
    wants_number = any(one.error["type"] in ("int_type", "float_type") for one in branches)
    return (
        wants_number and isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", value) is not None
    )
