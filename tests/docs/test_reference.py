"""docs/reference is what the classes of this code say."""

from __future__ import annotations

from netspec.tools.reference import pages
from tests.docs.examples import ROOT

FOLDER = ROOT / "docs" / "reference"


def test_the_reference_is_that_of_this_code():
    found = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}
    made = pages("netspec.")
    stale = sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))
    assert stale == [], "make them anew: `make docs`"
