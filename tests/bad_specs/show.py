"""Print what netspec says of a file of the corpus now, as the comments that a case begins with.

    python -m tests.bad_specs.show tests/bad_specs/fields/unknown_field.yaml

Read it before it goes into the file: would a user know at once what to do?
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bad_specs.case import FACTS, read_case
from tests.bad_specs.said import check

LONGEST_TEXT = 40
LONGEST_LIST = 10


def shortened(expected: str | None, hint: str) -> str | None:
    """A long list of names, which grows with every layer, without those that the hint does not speak of."""
    before, sign, names = (expected or "").partition("one of ")
    listed = names.split(", ")
    if not sign or len(listed) <= LONGEST_LIST:
        return expected
    said = set(re.findall(r"`(\w+)`|\b([A-Z]\w+)", hint))
    shown = [name for name in listed if (name, "") in said or ("", name) in said] or listed[:2]
    return f"{before}{sign}…{', …'.join(shown)}…" if shown != listed[:2] else f"{before}{sign}{', '.join(shown)}, …"


def comments(path: Path) -> Iterator[str]:
    """The lines, without the title."""
    case = read_case(path)
    for found in check(case).problems:
        file, line, column = found["file"], found["line"], found["column"]
        place = f"{line}:{column}" if file == path.name else f"{file}:{line}:{column}"
        yield "#"
        yield f"# {place} {case.text_at(file, line or 0, column or 0)[:LONGEST_TEXT]}".rstrip()
        facts = {**found, "expected": shortened(found["expected"], found["hint"] or "")}
        yield from (f"#   {fact}: {facts[fact]}" for fact in FACTS if facts[fact] is not None)
        yield from (f"#   note: {note}" for note in found["notes"])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"# {argument}", *comments(Path(argument).absolute()), sep="\n")
