"""The text format of protocol buffers (https://protobuf.dev/reference/protobuf/textformat-spec/): read and written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.exchange.files import LFS_POINTER, reading, sniff
from netspec.exchange.formats.caffe.proto.fields import FLOATS, INTEGERS, MessageField, enums
from netspec.exchange.formats.caffe.proto.message import Message, MessageSource, UnknownField

MAX_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_PROBLEMS = 100
_MAX_DIGITS = 400

# Possessive quantifiers: an invalid token fails without backtracking through the blanks before it.
_TOKEN = re.compile(
    r"""(?:[\ \t\r\n\f\v]++|\#[^\n]*+)*+
    (?:(?P<name>[A-Za-z_]\w*+)
    |(?P<number>0[xX][0-9a-fA-F]++|(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[fF]?+)
    |(?P<string>"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')
    |(?P<sign>[-:{}<>\[\],;])
    |(?P<end>\Z))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}
_BOOLEANS = {"true": True, "t": True, "True": True, "1": True, "false": False, "f": False, "False": False, "0": False}


def read_text(path: str | Path, kind: str, expected: str) -> Message:
    """Read the message in a text file; `expected` describes the expected file. Raises `InputError`."""
    with reading(path, expected) as (file, size):
        head = file.read(512)
        if size > MAX_BYTES:
            most = f"{MAX_BYTES:,} bytes at most"
            raise InputError(f"{path} is too large for a text of Caffe's", expected=most, got=f"{size:,} bytes")
        if b"\0" in head or head.startswith(LFS_POINTER):
            got, hint = sniff(head)
            raise InputError(f"{path} is not {expected}", expected=expected, got=got, hint=hint)
        content = head + file.read()
    # Comments may be in any encoding.
    return parse(content.decode("utf-8-sig", errors="replace"), kind, str(path))


def parse(text: str, kind: str, file: str = "the text") -> Message:
    """Parse a message of type `kind`. Raises `InputError` with all problems.

    Fields that Caffe does not have are kept as unknown, with their offset.
    """
    parser = _Parser(MessageSource(file, text))
    message = parser.message(Message(kind, parser.source, 0), "", 0)
    if parser.problems:
        raise InputError(parser.problems)
    return message


class _Parser:
    """Reads tokens from left to right. `kind`, `word` and `start` are type, text and offset of the next one."""

    def __init__(self, source: MessageSource) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.end = 0
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.source.text, self.end)
        if match is None:
            blank = re.compile(r"(?:\s++|#[^\n]*+)*+").match(self.source.text, self.end)
            self.start = blank.end() if blank else self.end
            char = self.source.text[self.start]
            if char in "\"'":
                self.stop("the string is not closed on its line", expected=f"a closing {char}")
            self.stop(f"unexpected character {char!r}")
        self.kind = str(match.lastgroup)
        self.word = match[self.kind]
        self.start, self.end = match.span(self.kind)

    def problem(self, message: str, offset: int, **facts: Any) -> None:
        self.problems.append(Problem(message, self.source.location(offset), **facts))
        if len(self.problems) >= MAX_PROBLEMS:
            raise InputError(self.problems)

    def stop(self, message: str, **facts: Any) -> NoReturn:
        """Report a problem after which the text cannot be parsed further."""
        self.problems.append(Problem(message, self.source.location(self.start), **facts))
        raise InputError(self.problems)

    def unexpected(self, expected: str) -> NoReturn:
        got = "the end of the file" if self.kind == "end" else f"`{self.word[:60]}`"
        self.stop(
            "this is not the text of a Caffe message" if not self.end else f"unexpected {got}",
            expected=expected,
            got=got,
        )

    def take(self, sign: str) -> bool:
        """Skip a sign if it is the next token."""
        if self.kind == "sign" and self.word == sign:
            self.advance()
            return True
        return False

    def message(self, into: Message, closing: str, depth: int) -> Message:
        """The fields up to the `closing` sign (or the end of the text)."""
        if depth > MAX_DEPTH:
            self.stop(f"messages are nested more than {MAX_DEPTH} deep")
        while not (self.kind == "end" and not closing):
            if closing and self.take(closing):
                break
            if self.kind == "end":
                self.stop(
                    f"a `{closing}` is missing", expected=f"`{closing}` for {into.kind.name}", notes=self._opened(into)
                )
            self.one_field(into, depth)
            while self.take(";") or self.take(","):
                pass
        return into

    def _opened(self, message: Message) -> tuple[str, ...]:
        return (f"it begins at {message.location()}",)

    def one_field(self, into: Message, depth: int) -> None:
        offset = self.start
        name = self.field_name()
        field = into.kind.fields.get(name)
        colon = self.take(":")
        if field is None:
            into.unknown.append(UnknownField(name, offset))
            self.skip_value(depth)
            return
        if not field.repeated and name in into:
            first = into.location(name)
            self.problem(f"`{name}` is given twice", offset, expected="one value", notes=(f"first at {first}",))
        if not colon and not field.is_message:
            self.unexpected(f"`:` after {name}")
        if self.take("["):
            self.several(into, field, offset, depth)
        else:
            self.value(into, field, offset, depth)

    def field_name(self) -> str:
        if self.take("["):  # the name of an extension, of which Caffe has none
            start, end = self.start, self.source.text.find("]", self.start)
            if end < 0 or end - start > 200:
                self.unexpected("`]`")
            self.end = end
            self.advance()
            self.take("]")
            return f"[{self.source.text[start:end]}]"
        if self.kind != "name":
            self.unexpected("the name of a field")
        name = self.word
        self.advance()
        return name

    def several(self, into: Message, field: MessageField, offset: int, depth: int) -> None:
        """Values between `[` and `]`."""
        if not field.repeated:
            self.problem(f"`{field.name}` takes one value, not a list", offset)
        while not self.take("]"):
            self.value(into, field, self.start, depth)
            if not self.take(",") and not (self.kind == "sign" and self.word == "]"):
                self.unexpected("`,` or `]`")

    def value(self, into: Message, field: MessageField, offset: int, depth: int) -> None:
        if field.is_message:
            opening = self.word
            if self.kind != "sign" or opening not in _CLOSING:
                self.unexpected(f"`{{`, since {field.name} is a message")
            self.advance()
            inner = Message(field.type, self.source, offset)
            into.add(field.name, self.message(inner, _CLOSING[opening], depth + 1), offset)
            return
        start = self.start
        negative = self.take("-")
        parsed = self.scalar(field, negative, start)
        if parsed is not None:
            into.add(field.name, parsed, offset)

    def scalar(self, field: MessageField, negative: bool, start: int) -> Any:
        """A value of a field; None if it is invalid, which is reported."""
        kind, word = self.kind, self.word
        if kind in ("end", "sign"):
            self.unexpected(f"a value of {field.name}")
        if field.type == "string":
            return self.string(field)
        self.advance()
        parsed: Any = None
        if field.type in INTEGERS and kind == "number":
            parsed = _integer(word, negative, *INTEGERS[field.type])
        elif field.type in FLOATS:
            parsed = _real(kind, word, negative)
        elif field.type == "bool" and not negative and kind in ("name", "number"):
            parsed = _BOOLEANS.get(word)
        elif field.type in enums() and not negative:
            parsed = _choice(field.type, kind, word)
        if parsed is None:
            self.wrong(field, ("-" if negative else "") + word[:60], start)
        return parsed

    def string(self, field: MessageField) -> str | None:
        if self.kind != "string":
            self.wrong(field, self.word[:60], self.start)
            self.advance()
            return None
        parts = []
        while self.kind == "string":  # adjacent strings are joined
            parts.append(_unescaped(self.word[1:-1]))
            self.advance()
        return "".join(parts)

    def wrong(self, field: MessageField, got: str, offset: int) -> None:
        choices = enums().get(field.type)
        if choices:
            expected = f"one of {listing(list(choices))}"
        elif field.type in INTEGERS:
            expected = "an integer from {:,} to {:,}".format(*INTEGERS[field.type])
        else:
            expected = {"bool": "true or false", "string": "text in quotes"}.get(field.type, "a number")
        hint = did_you_mean(got, choices) if choices else None
        self.problem(f"`{field.name}` has a wrong value", offset, expected=expected, got=f"`{got}`", hint=hint)

    def skip_value(self, depth: int) -> None:
        """Skip the value of an unknown field."""
        closing: list[str] = []
        while True:
            if self.kind == "end":
                self.unexpected("a value")
            if self.kind == "sign":
                sign = self.word
                if sign in _CLOSING or sign == "[":
                    closing.append(_CLOSING.get(sign, "]"))
                    if depth + len(closing) > MAX_DEPTH:
                        self.stop(f"messages are nested more than {MAX_DEPTH} deep")
                elif closing and sign == closing[-1]:
                    closing.pop()
                elif not closing and sign != "-":
                    self.unexpected("a value")
                elif sign in "}>]":
                    self.unexpected(f"`{closing[-1]}`" if closing else "a value")
            last = self.kind, self.word
            self.advance()
            if not closing and last != ("sign", "-") and not (last[0] == "string" == self.kind):
                return


def _integer(word: str, negative: bool, smallest: int, largest: int) -> int | None:
    if len(word) > _MAX_DIGITS:
        return None
    try:
        integer = int(word, 16) if word[:2] in ("0x", "0X") else int(word, 8 if word[0] == "0" and word != "0" else 10)
    except ValueError:
        return None
    integer = -integer if negative else integer
    return integer if smallest <= integer <= largest else None


def _real(kind: str, word: str, negative: bool) -> float | None:
    if kind == "name" and word.lower() not in ("inf", "infinity", "nan"):
        return None
    if kind not in ("name", "number") or len(word) > _MAX_DIGITS or word[:2] in ("0x", "0X"):
        return None
    number = float(word if kind == "name" else word.rstrip("fF"))
    return -number if negative else number


def _choice(enum: str, kind: str, word: str) -> str | None:
    """The name of an enum's value, which may be given by its number."""
    numbers = enums()[enum]
    if kind == "number" and len(word) < 10 and word.isdigit():
        return next((name for name, number in numbers.items() if number == int(word)), None)
    return word if kind == "name" and word in numbers else None


def _unescaped(text: str) -> str:
    """Replace the escapes of a string; escaped bytes are decoded as UTF-8."""
    if "\\" not in text:
        return text
    raw, last = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        raw += text[last : match.start()].encode()
        octal, hexadecimal, char = match.groups()
        if char is None:
            raw.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
        else:
            raw += _ESCAPES.get(char, char).encode()
        last = match.end()
    return (bytes(raw) + text[last:].encode()).decode("utf-8", errors="replace")


_PRINTED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def to_text(message: Message) -> str:
    """The fields that are set, each on a line, messages in braces. Unknown fields of binary files have no text."""
    return "".join(f"{line}\n" for line in _lines(message, ""))


def _lines(message: Message, indent: str) -> Iterator[str]:
    for name in message:
        field, value = message.field(name), message[name]
        for item in value if field.repeated else [value]:
            if isinstance(item, Message):
                inner = list(_lines(item, indent + "  "))
                yield from [f"{indent}{name} {{", *inner, f"{indent}}}"] if inner else [f"{indent}{name} {{}}"]
            else:
                yield f"{indent}{name}: {_scalar(field, item)}"


def _scalar(field: MessageField, value: Any) -> str:
    if field.type == "bool":
        return "true" if value else "false"
    if field.type == "string":
        return '"' + "".join(_escaped(char) for char in value) + '"'
    if field.type in ("float", "double"):
        return real(float(str(value)))
    return str(value)


def real(value: float) -> str:
    """The shortest form of a number: 1, 0.01, 1e-05."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e16 else repr(value)


def _escaped(char: str) -> str:
    if char in _PRINTED:
        return _PRINTED[char]
    return char if char >= " " and char != "\x7f" else f"\\{ord(char):03o}"
