"""What the YAML parser objects to, told in the words of someone who writes specs."""

from __future__ import annotations

import re
from collections.abc import Callable

from yaml.error import MarkedYAMLError

from netspec.errors import Location, Problem

_EXPRESSION = re.compile(r"""(?<!["'])\$\{""")

# (what PyYAML says, what to tell, hint); the first whose pattern is found in PyYAML's text is taken.
_EXPLANATIONS: tuple[tuple[str, str, str | None], ...] = (
    (r"found character '\\t'", "a tab can't be used to indent or separate", "use spaces"),
    (
        r"found character '(.)' that cannot start any token",
        "text can't start with `{0}` unless it is quoted",
        "write it in quotes",
    ),
    (
        r"mapping values are not allowed here",
        "a `:` where no key can stand",
        "indent the line as its neighbours are, or quote a text that holds `: `",
    ),
    (r"could not find expected ':'", "this line is no `key: value`", "is a `:`, or the space after it, missing above?"),
    (r"expected ',' or '\]'", "this list is not closed", "is a `,` or `]` missing?"),
    (r"expected ',' or '\}'", "this mapping is not closed", "is a `,` or `}}` missing?"),
    (r"found unexpected end of stream", "a quoted text is not closed", "write the closing quote"),
    (r"found unexpected document separator", "a quoted text is not closed", "write the closing quote"),
    (
        r"expected <block end>, but found '-'",
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
    place = at(mark.line, mark.column) if mark else at(0, 0)
    message, hint = f"not right YAML: {said}", None
    for pattern, text, advice in _EXPLANATIONS:
        found = re.search(pattern, said)
        if found:
            message = text.format(*found.groups())
            hint = advice.format() if advice else None
            break
    if _EXPRESSION.search(place.text) and re.search(r"expected ',' or|block end|':'", said):
        hint = 'inside [ ] or { } an expression needs quotes: "${…}"'
    notes: tuple[str, ...] = ()
    start = error.context_mark
    if start is not None and mark is not None and start.line != mark.line:
        notes = (f"it starts at {at(start.line, start.column)}",)
    return Problem(message, place, hint=hint, notes=notes)
