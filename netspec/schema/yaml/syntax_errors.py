"""Explains errors of the YAML parser to authors of specs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from yaml.error import MarkedYAMLError

from netspec.errors import Location, Problem

_EXPRESSION = re.compile(r"""(?<!["'])\$\{""")
_SLASHES = re.compile(r"(^|\s)(//)")
_OTHER_LINE = re.compile(r"\s*[^\s#:-][^:]*$")

# (pattern of PyYAML's message, our message, hint); the first pattern that matches is used.
_EXPLANATIONS: tuple[tuple[str, str, str | None], ...] = (
    (r"found character '\\t'", "tabs cannot be used for indentation or as separators", "use spaces"),
    (
        r"found character '(.)' that cannot start any token",
        "text cannot start with `{0}` unless it is quoted",
        "write it in quotes",
    ),
    (r"mapping values are not allowed here", "unexpected `:`", "indent the line like the lines around it"),
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
        "this `-` is not aligned with the other items of the list",
        "align it with the items above",
    ),
    (
        r"expected <block end>",
        "unexpected indentation",
        "align it with the keys above, or close an open bracket or quote there",
    ),
    (r"found unknown escape character", "this escape is unknown inside double quotes", "use single quotes, or `\\\\`"),
    (r"found duplicate anchor", "this anchor is given twice", None),
    (r"undefined tag handle", "this tag is unknown: a spec contains only plain data", "remove the tag"),
)


def explain(error: MarkedYAMLError, at: Callable[[int, int], Location]) -> Problem:
    """Return the problem for a syntax error of PyYAML; `at(line, column)`, from 0, makes locations."""
    reason = error.problem or error.context or "unknown error"
    mark = error.problem_mark or error.context_mark
    if mark is not None and re.search(r"found unexpected (end of stream|document separator)", reason):
        mark = error.context_mark or mark  # where the quoted text begins, not where the file ends
    location = at(mark.line, mark.column) if mark else at(0, 0)
    message, hint = f"invalid YAML: {reason}", None
    for pattern, text, advice in _EXPLANATIONS:
        match = re.search(pattern, reason)
        if match:
            message = text.format(*match.groups())
            hint = advice.format() if advice else None
            break
    if mark is not None:
        above = at(mark.line - 1, 0) if mark.line else None
        message, hint, location = _explain_from_lines(reason, location, above) or (message, hint, location)
    notes: tuple[str, ...] = ()
    start = error.context_mark
    if start is not None and mark is not None and start.line != mark.line:
        notes = (f"it starts at {at(start.line, start.column)}",)
    return Problem(message, location, hint=hint, notes=notes)


def _explain_from_lines(reason: str, location: Location, above: Location | None) -> tuple[str, str, Location] | None:
    """Return message, hint and location if the lines show the mistake; `above` is the line before."""
    before = location.text[: location.column - 1]
    if _EXPRESSION.search(location.text) and re.search(r"expected ',' or|block end|':'", reason):
        return "an expression without quotes", 'inside [ ] or { } an expression needs quotes: "${…}"', location
    for line in filter(None, (above, location)):
        slashes = _SLASHES.search(line.text)
        if slashes:
            return "invalid comment", "a comment begins with `#`", replace(line, column=slashes.start(2) + 1)
    if "mapping values are not allowed" in reason:
        if ": " in before:
            return "a second `:` in the line", "put text that contains `: ` in quotes", location
        if above and _OTHER_LINE.match(above.text):
            start = len(above.text) - len(above.text.lstrip()) + 1
            return "this line is not `key: value`", "is its `:` missing?", replace(above, column=start)
    if "<block end>" in reason and before.rstrip().endswith(("'", '"')):
        return "text after the closing quote", "a quote inside single quotes is written twice: 'it''s'", location
    return None
