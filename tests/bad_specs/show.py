"""Print what netspec says of a file of the corpus now, as the comments that a case begins with.

    python -m tests.bad_specs.show tests/bad_specs/fields/unknown_in_layer.yaml

Read it before it goes into the file: would a user know at once what to do?
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bad_specs.case import FACTS, read_case
from tests.bad_specs.said import check

LONGEST_TEXT = 40
LONGEST_LIST = 10
GROWING = re.compile("^unknown|has no field|has no `|must be a name")
WORDS = {"name", "from"}
"""Names of fields that are words of a sentence too."""


def shortened(found: Mapping[str, Any]) -> str | None:
    """What is expected; of names that grow in number with every layer and field only those that the hint gives."""
    expected: str | None = found["expected"]
    before, sign, names = (expected or "").partition("one of ")
    listed = names.split(", ")
    if not sign or (len(listed) <= LONGEST_LIST and not GROWING.search(found["message"])):
        return expected
    hinted = set(re.findall(r"\w+", found["hint"] or ""))
    return f"{before}{sign}…{''.join(f'{name}…' for name in listed if name in hinted and name not in WORDS)}"


def comments(path: Path) -> Iterator[str]:
    """The lines, without the title."""
    case = read_case(path)
    for found in check(case).problems:
        file, line, column = found["file"], found["line"], found["column"]
        place = f"{line}:{column}" if file == path.name else f"{file}:{line}:{column}"
        yield "#"
        yield f"# {place} {case.text_at(file, line or 0, column or 0)[:LONGEST_TEXT]}".rstrip()
        facts = {**found, "expected": shortened(found)}
        yield from (f"#   {fact}: {facts[fact]}" for fact in FACTS if facts[fact] is not None)
        yield from (f"#   note: {note}" for note in found["notes"])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"# {argument}", *comments(Path(argument).absolute()), sep="\n")
