"""Convert pydantic's errors to problems in terms of YAML, each with its location.

A value that matches no member of a union is one problem, and so is an unknown name in place of a missing field. Errors
of nested members of registries get their location in the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from netspec.errors import Location, Problem, did_you_mean, listing
from netspec.schema.language.interpolation import location_in_text
from netspec.schema.messages.pydantic_messages import value_message
from netspec.schema.specs.annotations import fields_by_name, is_union, members, step_into
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.spec import Spec, describe
from netspec.schema.yaml.tree import Map, Path, Seq, dotted, locate

_COMMON = frozenset({"type", "source", "name", "from", "batch_size"})
"""Fields that many classes have, which do not indicate a class."""
_DOCUMENTS = {
    "NetSpec": "a net file",
    "TrainSpec": "a training file",
    "PartSpec": "an included file",
    "CardSpec": "a card",
}
TYPE_ERRORS = frozenset({"is_instance_of", "literal_error", "netspec_type", "none_required"})


def is_type_error(kind: str) -> bool:
    """Whether an error of pydantic is about the type of a value, not about its bounds."""
    return kind.endswith("_type") or kind in TYPE_ERRORS


@dataclass(frozen=True)
class Frame:
    """The context of a validation error: the document, and the part of it that was validated."""

    root: Any
    prefix: Path
    tree: Any
    cls: type[Spec]
    location: Location | None
    """The location of the part, for values without a location."""

    def at(self, path: Path, *, key: bool = False) -> Location | None:
        """Return the location of `path` in the part."""
        return (locate(self.tree, path, key=key)[0] if isinstance(self.tree, (Map, Seq)) else None) or self.location

    def path(self, path: Path) -> str:
        """Return `path` as text, from the top of the document."""
        return dotted(self.root, (*self.prefix, *path))


@dataclass(frozen=True)
class Finding:
    """An error of pydantic, with its path without tags of unions, and the union to which it belongs, if any."""

    error: ErrorDetails
    path: Path
    union: tuple[int, str] | None
    """Length of the path to the union, and the tag of its member."""
    cls: type[Spec]
    """The class of the innermost spec, which has the last step of the path as a field."""
    inner: int
    """Length of the path to that spec."""
    on_key: bool
    annotation: Any
    """The type that the value at the path should have; None if it is unknown."""


def problems_of(error: ValidationError, tree: Any, cls: type[Spec], location: Location | None = None) -> list[Problem]:
    """Return all problems of a failed validation of `tree` as a `cls`."""
    return _problems(error, Frame(tree, (), tree, cls, location))


def _problems(error: ValidationError, frame: Frame) -> list[Problem]:
    return _combined([_finding(details, frame) for details in error.errors(include_url=False)], frame)


def _combined(findings: list[Finding], frame: Frame) -> list[Problem]:
    """Convert findings to problems: one for each union, and none for a missing field under a wrong name."""
    unions: dict[Path, list[Finding]] = {}
    problems: list[Problem] = []
    for finding in findings:
        if finding.union:
            unions.setdefault(finding.path[: finding.union[0]], []).append(finding)
        elif finding.error["type"] != "missing":
            problems += _problems_of_finding(finding, frame)
    for path, branches in unions.items():
        problems += _union(path, branches, frame)
    for finding in findings:
        if finding.error["type"] == "missing" and not finding.union and not _is_misnamed(finding, findings):
            problems += _problems_of_finding(finding, frame)
    return problems


def _finding(error: ErrorDetails, frame: Frame) -> Finding:
    """Follow the error's path in the annotations of the class, to separate fields from tags of unions."""
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


def _is_misnamed(missing: Finding, findings: list[Finding]) -> bool:
    """Whether a missing field is present under a wrong name, which is reported already."""
    field = f"`{missing.path[-1]}`"
    siblings = (finding for finding in findings if finding.path[:-1] == missing.path[:-1])
    unknown = (finding for finding in siblings if finding.error["type"] == "extra_forbidden")
    return any(field in (_unknown_hint(finding) or "") for finding in unknown)


def _problems_of_finding(finding: Finding, frame: Frame) -> list[Problem]:
    error, path = finding.error, finding.path
    context: Mapping[str, Any] = error.get("ctx") or {}
    match error["type"]:
        case "nested":
            data = context["data"]
            tree = data if isinstance(data, (Map, Seq)) else None
            nested = Frame(frame.root, (*frame.prefix, *path), tree, context["cls"], frame.at(path))
            guessed = context.get("guessed")
            if guessed is None:
                return _problems(context["error"], nested)
            return [_from_validator(guessed, path, frame), *_guess_problems(context["error"], nested, guessed["hint"])]
        case "netspec" | "netspec_type":
            return [_from_validator(context, path, frame)]
        case "extra_forbidden":
            return [_unknown_field(finding, frame)]
        case "missing":
            return [_missing(finding, frame)]
    message = value_message(error, _display_name(path, frame), context)
    location = frame.at(path, key=finding.on_key)
    expected = _mapping_example(finding) if error["type"].startswith("model_") else message.expected
    hint = _expression_hint(error, message.hint) if _is_expression(location) else message.hint
    return [Problem(message.message, location, frame.path(path), expected, message.got, hint)]


def _from_validator(context: Mapping[str, Any], path: Path, frame: Frame) -> Problem:
    """Return the problem that a validator of netspec raised for the value at `path`, or for a field in it."""
    field = context.get("field")
    full_path = (*path, *_steps(field)) if field else path
    text: str = context["text"]
    if text.startswith(("not ", "has ")) and full_path:
        verb = "is " if text.startswith("not ") else ""
        text = f"{_display_name(full_path, frame)} {verb}{text}"
    expected, got, hint = (context.get(name) for name in ("expected", "got", "hint"))
    location, text_offset = frame.at(full_path), context.get("inside")
    if location is not None and text_offset is not None:
        value, offset = text_offset
        location = location_in_text(location, value, 0, offset)
    return Problem(text, location, frame.path(full_path), expected, got, hint)


def _guess_problems(error: ValidationError, frame: Frame, hint: str) -> list[Problem]:
    """Return the problems besides an unknown type, assuming the class that the hint names.

    None if the fields indicate another class: some are unknown to it, and none belongs to it. Missing fields that the
    hint contains are not reported.
    """
    findings = [_finding(details, frame) for details in error.errors(include_url=False)]
    top_level = [finding for finding in findings if len(finding.path) == 1]
    unknown = [finding for finding in top_level if finding.error["type"] == "extra_forbidden"]
    own_fields = set(fields_by_name(frame.cls)) - _COMMON
    if any(_unknown_hint(finding) is None for finding in unknown) and not (
        own_fields & set(frame.tree or ()) or any(map(_unknown_hint, unknown))
    ):
        return []
    missing = [finding for finding in top_level if finding.error["type"] == "missing"]
    in_hint = [finding for finding in missing if f"`{finding.path[0]}: " in hint]
    return _combined([finding for finding in findings if finding not in in_hint], frame)


def _mapping_example(finding: Finding) -> str:
    """Describe a mapping of a spec class: by its required fields, or else by all fields."""
    kinds = members(finding.annotation)
    cls = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Spec)), Spec)
    required = [name for name, field in fields_by_name(cls).items() if field.is_required()]
    if required:
        return f"a mapping such as `{{{', '.join(f'{name}: …' for name in required)}}}`"
    return f"a mapping with some of {listing(list(fields_by_name(cls)))}"


def _is_expression(location: Location | None) -> bool:
    """Whether the location has an expression, so that the value is its result."""
    return location is not None and re.match(r"""["']?[^"'\s]*\$\{""", location.text[location.column - 1 :]) is not None


def _expression_hint(error: ErrorDetails, hint: str | None) -> str | None:
    value = error["input"]
    if error["type"] == "int_type" and isinstance(value, float):
        return "use `//` or `int(…)` for an integer"
    if error["type"] in ("int_type", "float_type") and isinstance(value, str):
        return "the result is a number only if the value is a single `${…}`"
    return hint


def _steps(field: str) -> Path:
    return tuple(int(word) if word.isdigit() else word for word in field.split("."))


def _display_name(path: Path, frame: Frame) -> str:
    """Return the name of the value at `path` for messages: its field, with the index of an item."""
    start = max((index for index, step in enumerate(path) if isinstance(step, str)), default=0)
    words = [str(step) for step in path[start:]]
    return f"`{'.'.join(words)}`" if words else f"`{frame.path(())}`" if frame.prefix else "the document"


def _owner(finding: Finding, frame: Frame) -> str:
    """Return the name of the spec to which a field belongs, for messages."""
    for tag in ("type", "source"):
        default = finding.cls.model_fields[tag].default if tag in finding.cls.model_fields else None
        if isinstance(default, str) and default:
            return f"`{default}`"
    path = frame.path(finding.path[: finding.inner])
    return f"`{path}`" if path else _DOCUMENTS.get(finding.cls.__name__, "this")


def _unknown_hint(finding: Finding) -> str | None:
    name = str(finding.path[-1])
    fields_here = fields_by_name(finding.cls)
    before, colon, after = name.partition(":")
    if colon and before in fields_here:
        return f"`{before}` needs a space after its `:`: write `{before}: {after}`"
    for cls in finding.cls.__mro__:
        hint: str | None = cls.__dict__.get("foreign_fields", {}).get(name)
        if hint is None:
            continue
        replacement = re.match(r"(?:`\w+` is [^:]+: )?use (.*)", hint)
        fields = re.findall(r"`(\w+)`", replacement.group(1)) if replacement else []
        if not fields or any(field in fields_here for field in fields):
            return hint
    return did_you_mean(name, fields_here)


def _unknown_field(finding: Finding, frame: Frame) -> Problem:
    field_names, hint = list(fields_by_name(finding.cls)), _unknown_hint(finding)
    return Problem(
        f"{_owner(finding, frame)} has no field `{finding.path[-1]}`",
        frame.at(finding.path, key=True),
        frame.path(finding.path),
        expected=f"one of {listing(field_names, hint=hint)}",
        hint=hint,
    )


def _missing(finding: Finding, frame: Frame) -> Problem:
    name = str(finding.path[-1])
    meaning = _first_sentence(field_docs(finding.cls).get(name, ""))
    example = _field_example(name, fields_by_name(finding.cls)[name].annotation)
    return Problem(
        f"{_owner(finding, frame)} needs `{name}`, which is missing",
        frame.at(finding.path[:-1]),
        frame.path(finding.path),
        expected=example + (f" ({meaning})" if meaning else ""),
        hint="write `netspec: 1` on the first line" if name == "netspec" else None,
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence of a field's documentation as a phrase: without its capital letter and full stop."""
    sentence = " ".join(text.split()).split(". ")[0].removesuffix(".")
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _field_example(name: str, annotation: Any) -> str:
    """Return how to write a field, with its possible values if they are few."""
    (kind, *others) = members(annotation)
    choices: tuple[Any, ...] = (True, False) if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
    if others or not 0 < len(choices) <= 4:  # more do not fit on a line
        return f"`{name}: …`"
    values = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices]
    return " or ".join(f"`{name}: {value}`" for value in values)


def _union(path: Path, branches: list[Finding], frame: Frame) -> list[Problem]:
    """Return the problems of a value that matches no member of a union, or only those of the intended member."""
    value: Any = frame.tree
    by_tag: dict[str, list[Finding]] = {}
    for finding in branches:
        assert finding.union is not None
        by_tag.setdefault(finding.union[1], []).append(finding)
        if len(finding.path) == len(path):
            value = finding.error["input"]
    intended = [
        group
        for group in by_tag.values()
        if not any(len(finding.path) == len(path) and is_type_error(finding.error["type"]) for finding in group)
    ]
    if intended and not _is_quoted_number(value, branches):
        return [problem for finding in intended[0] for problem in _problems_of_finding(finding, frame)]
    name = _display_name(path, frame)
    messages = [value_message(group[0].error, name, group[0].error.get("ctx") or {}) for group in by_tag.values()]
    *kinds, last = dict.fromkeys(message.expected for message in messages if message.expected)
    expected = f"{', '.join(kinds)} or {last}" if kinds else last
    hints = (message.hint for message in messages if message.expected and not message.expected.startswith("a list"))
    hint = next(filter(None, hints), None)
    return [
        Problem(
            f"{name} has the wrong type",
            frame.at(path),
            frame.path(path),
            expected,
            describe(value),
            hint,
        )
    ]


def _is_quoted_number(value: Any, branches: list[Finding]) -> bool:
    wants_number = any(finding.error["type"] in ("int_type", "float_type") for finding in branches)
    return (
        wants_number and isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", value) is not None
    )
