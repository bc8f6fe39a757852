"""docs/reference matches the classes."""

from __future__ import annotations

from tests.docs.examples import ROOT
from tests.tools.reference.generated import generated

FOLDER = ROOT / "docs" / "reference"


def test_the_reference_matches_the_classes():
    stored = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}
    pages = generated()
    stale = sorted(name for name in pages.keys() | stored.keys() if pages.get(name) != stored.get(name))
    assert stale == [], "run `make docs`"
