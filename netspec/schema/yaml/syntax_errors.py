"""What the YAML parser objects to, told in the words of someone who writes specs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from yaml.error import MarkedYAMLError

from netspec.errors import Location, Problem

_EXPRESSION = re.compile(r"""(?<!["'])\$\{""")
_SLASHES = re.compile(r"(^|\s)(//)")
_OTHER_LINE = re.compile(r"\s*[^\s#:-][^:]*$")

# (what PyYAML says, what to tell, hint); the first whose pattern is found in PyYAML's text is taken.
_EXPLANATIONS: tuple[tuple[str, str, str | None], ...] = (
    (r"found character '\\t'", "a tab can't be used to indent or separate", "use spaces"),
    (
        r"found character '(.)' that cannot start any token",
        "text can't start with `{0}` unless it is quoted",
        "write it in quotes",
    ),
    (r"mapping values are not allowed here", "a `:` where no key can stand", "indent the line as its neighbours are"),
    (
        r"could not find expected ':'",
        "this line is not `key: value`",
        "is a `:`, or the space after it, missing above?",
    ),
    (r"expected ',' or '\]'", "this list is not closed", "is a `,` or `]` missing?"),
    (r"expected ',' or '\}'", "this mapping is not closed", "is a `,` or `}}` missing?"),
    (r"found unexpected end of stream", "a quoted text is not closed", "write the closing quote"),
    (r"found unexpected document separator", "a quoted text is not closed", "write the closing quote"),
    (
        r"expected the node content, but found '<stream end>'",
        "the file ends inside a list or mapping",
        "is a `]` or `}}` missing?",
    ),
    (r"expected the node content", "a value is missing here", None),
    (
        r"expected <block end>, but found '(-|<block sequence start>)'",
        "this `-` is not at the column of the list's other items",
        "align it with the items above",
    ),
    (
        r"expected <block end>",
        "this line does not fit into the lines above",
        "align it with the keys above, or close a bracket or quote left open there",
    ),
    (r"found unknown escape character", "this escape is unknown inside double quotes", "use single quotes, or `\\\\`"),
    (r"found duplicate anchor", "this anchor is given twice", None),
    (r"undefined tag handle", "this tag is unknown: a spec holds plain data only", "leave the tag out"),
)


def explain(error: MarkedYAMLError, at: Callable[[int, int], Location]) -> Problem:
    """The problem for a syntax error of PyYAML; `at(line, column)` makes locations from marks that count from 0."""
    said = error.problem or error.context or "not right YAML"
    mark = error.problem_mark or error.context_mark
    if mark is not None and re.search(r"found unexpected (end of stream|document separator)", said):
        mark = error.context_mark or mark  # where the quoted text begins, not where the file ends
    place = at(mark.line, mark.column) if mark else at(0, 0)
    message, hint = f"not right YAML: {said}", None
    for pattern, text, advice in _EXPLANATIONS:
        found = re.search(pattern, said)
        if found:
            message = text.format(*found.groups())
            hint = advice.format() if advice else None
            break
    if mark is not None:
        above = at(mark.line - 1, 0) if mark.line else None
        message, hint, place = _better(said, place, above) or (message, hint, place)
    notes: tuple[str, ...] = ()
    start = error.context_mark
    if start is not None and mark is not None and start.line != mark.line:
        notes = (f"it starts at {at(start.line, start.column)}",)
    return Problem(message, place, hint=hint, notes=notes)


def _better(said: str, place: Location, above: Location | None) -> tuple[str, str, Location] | None:
    """Message, hint and place where the lines themselves show what is wrong; `above` is the line before."""
    before = place.text[: place.column - 1]
    if _EXPRESSION.search(place.text) and re.search(r"expected ',' or|block end|':'", said):
        return "an expression without quotes", 'inside [ ] or { } an expression needs quotes: "${…}"', place
    for line in filter(None, (above, place)):
        slashes = _SLASHES.search(line.text)
        if slashes:
            return "invalid comment", "a comment begins with `#`", replace(line, column=slashes.start(2) + 1)
    if "mapping values are not allowed" in said:
        if ": " in before:
            return "a second `:` in the line", "quote a text that holds `: `", place
        if above and _OTHER_LINE.match(above.text):
            start = len(above.text) - len(above.text.lstrip()) + 1
            return "this line is not `key: value`", "is its `:` missing?", replace(above, column=start)
    if "<block end>" in said and before.rstrip().endswith(("'", '"')):
        return "text goes on after the closing quote", "a quote inside single quotes is written twice: 'it''s'", place
    return None
