"""Print the problems that netspec reports for cases of the corpus now, as the comments above a case.

    python -m tests.bad_specs.show fields/unknown_in_layer       # one case, or all cases of a topic: `fields`
    python -m tests.bad_specs.show --write fields shapes         # rewrite the comments that no longer fit

Read the result before it is committed: would a user know at once what to do?
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from tests.bad_specs.case import CORPUS, FACTS, Case, Report, read_cases, read_topic, write_topic

LONGEST_TEXT = 40
LONGEST_LIST = 10
GROWING = re.compile("^unknown|has no field|has no `|must be a name$")
WORDS = {"name", "from"}
"""Names of fields that are also common words of a sentence."""


def shortened(problem: Mapping[str, Any]) -> str | None:
    """Return the expectation; a list that grows with every layer and field keeps only the names in the hint."""
    expected: str | None = problem["expected"]
    before, sign, names = (expected or "").partition("one of ")
    listed = re.sub(r" and [\d,]+ more.*", "", names).split(", ")
    if not sign or (len(listed) <= LONGEST_LIST and not GROWING.search(problem["message"])):
        return expected
    hinted = set(re.findall(r"\w+", problem["hint"] or ""))
    return f"{before}{sign}…{''.join(f'{name}…' for name in listed if name in hinted and name not in WORDS)}"


def differences(case: Case, report: Report) -> list[str]:
    """Return how the reported problems differ from the expected ones."""
    wrong: list[str] = []
    for expected, reported in zip_longest(case.problems, report.problems):
        if reported is None:
            wrong.append(f"not reported: {expected}")
        elif expected is None:
            wrong.append(f"not expected: {reported}")
        else:
            wrong += expected.differences(reported, case)
    return wrong


def comments(case: Case) -> Iterator[str]:
    """Yield the lines of comments: the title and changes as they are, the problems as reported."""
    yield f"# {case.title}"
    yield from (line for line in case.comments.splitlines() if line.startswith("# with: "))
    for problem in case.check().problems:
        file, line, column = problem["file"], problem["line"], problem["column"]
        location = f"{line}:{column}" if file == case.file else f"{file}:{line}:{column}"
        yield "#"
        yield f"# {location} {case.text_at(file, line or 0, column or 0)[:LONGEST_TEXT]}".rstrip()
        facts = {**problem, "expected": shortened(problem)}
        yield from (f"#   {fact}: {facts[fact]}" for fact in FACTS if facts[fact] is not None)
        yield from (f"#   note: {note}" for note in problem["notes"])


def _rewrite(topic: str) -> None:
    path = CORPUS / f"{topic}.yaml"
    cases = read_topic(path)
    for case in cases:
        if differences(case, case.check()):
            case.comments = "".join(f"{line}\n" for line in comments(case))
            print(f"{case.name}: rewritten")
    write_topic(path, cases)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        for argument in sys.argv[2:]:
            _rewrite(argument)
    else:
        for case in read_cases():
            if {case.name, case.topic} & set(sys.argv[1:]):
                print(f"--- # {case.stem}", *comments(case), case.text, sep="\n")
