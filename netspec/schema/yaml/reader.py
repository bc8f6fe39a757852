"""The YAML reader: converts a file or a text to a tree of `Map` and `Seq` with the location of each value.

It accepts one YAML 1.2 document of plain data: mappings with text keys (an integer key becomes its digits), sequences
and the core schema's scalars, with anchors, aliases and merge keys (`<<`). Tags of other types are refused. Nothing in
a file is executed. Size, depth and the number of values after alias expansion are bounded, so that a small file cannot
fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from yaml.error import MarkedYAMLError
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from netspec.errors import InputError, Location, Problem, SpecError, kind_of_file, kind_of_path
from netspec.schema.bundled import near_model
from netspec.schema.messages.foreign_files import refuse_by_name, refuse_prototxt
from netspec.schema.yaml.builder import TreeBuilder
from netspec.schema.yaml.syntax_errors import explain
from netspec.schema.yaml.tree import Map

try:
    cyaml: Any = import_module("yaml.cyaml")
except ImportError:  # PyYAML built without libyaml
    cyaml = None

MAX_BYTES = 16 * 2**20

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_LocateFn = Callable[[int, int], Location]


class _PureParser(Reader, Scanner, Parser):
    """PyYAML's parser in Python: slower than libyaml, with the same messages on every machine."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


def read_yaml(path: str | Path) -> Map:
    """Read the document in a file; locations contain the name given by the user.

    Raises `InputError` if the file cannot be read or belongs to another program, `SpecError` with all problems if it is
    not valid YAML.
    """
    name = str(path)
    data = _read_bytes(Path(path))
    refuse_by_name(name)
    text = _decode(data, name)
    try:
        return parse_yaml(text, name)
    except SpecError:
        refuse_prototxt(name, text)
        raise


def parse_yaml(text: str, name: str) -> Map:
    """Parse the document in a text; `name` is the file name in locations. Raises `SpecError`."""
    text = text.removeprefix("\ufeff")
    lines = _BREAK.split(text)

    def at(line: int, column: int) -> Location:
        return Location(name, line + 1, column + 1, lines[line] if line < len(lines) else "")

    tree = build(text, at)
    if not isinstance(tree, Map):
        empty = tree is None
        raise SpecError(
            Problem(
                "the file is empty" if empty else "the document is not a mapping",
                tree.origin if isinstance(tree, list) and hasattr(tree, "origin") else at(0, 0),
                expected="a mapping such as `netspec: 1`, one `key: value` per line",
            )
        )
    return tree


def build(text: str, at: _LocateFn) -> Any:
    """Build the tree of a document; `at(line, column)`, from 0, makes its locations. Raises `SpecError`."""
    unprintable = Reader.NON_PRINTABLE.search(text)
    if unprintable:
        raise SpecError(_unprintable(text, unprintable.start(), at))
    builder = TreeBuilder(at)
    try:
        try:
            tree = builder.document(_c_parser(text))
        except MarkedYAMLError:
            builder = TreeBuilder(at)
            tree = builder.document(_PureParser(text))
    except MarkedYAMLError as error:
        raise SpecError([*builder.problems, explain(error, at)]) from None
    if builder.problems:
        raise SpecError(builder.problems)
    return tree


def _c_parser(text: str) -> Any:
    """Return libyaml's parser, about ten times as fast, if PyYAML was built with it."""
    return cyaml.CParser(text) if cyaml else _PureParser(text)


def _unprintable(text: str, offset: int, at: _LocateFn) -> Problem:
    before = _BREAK.split(text[:offset])
    return Problem(
        f"the character U+{ord(text[offset]):04X} is not allowed in YAML",
        at(len(before) - 1, len(before[-1])),
        hint='inside double quotes it can be written as an escape such as "\\x00"',
    )


def _read_bytes(path: Path) -> bytes:
    _refuse_irregular(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", hint=near_model(path)) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} is too large for a spec", expected=f"at most {MAX_BYTES // 2**20} MiB")
    return data


def _refuse_irregular(path: Path) -> None:
    kind = kind_of_path(path)
    if kind is None:
        return
    if not path.is_dir():
        raise InputError(f"{path} is {kind}", expected="a YAML file")
    specs = sorted(entry.name for entry in path.glob("*.yaml"))[:8]
    hint = f"it contains {', '.join(specs)}" if specs else "give the path of a YAML file"
    raise InputError(f"{path} is a directory", expected="a YAML file", hint=hint)


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        lines = _BREAK.split(before)
        if b"\0" in data[:512] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"{name} is not text", expected="a YAML file", got=kind_of_file(data[:64])) from None
        utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise SpecError(
            Problem(
                "the file is not UTF-8 text",
                Location(name, len(lines), len(lines[-1]) + 1, ""),
                expected="UTF-8",
                got="UTF-16" if utf16 else f"the byte 0x{data[error.start]:02x}",
                hint="save it as UTF-8",
            )
        ) from None
