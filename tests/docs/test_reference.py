"""docs/reference matches the classes."""

from __future__ import annotations

from netspec.tools.reference import pages
from tests.docs.examples import ROOT

FOLDER = ROOT / "docs" / "reference"


def test_the_reference_matches_the_classes():
    stored = {path.relative_to(FOLDER).as_posix(): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}
    generated = pages("netspec.")
    stale = sorted(name for name in generated.keys() | stored.keys() if generated.get(name) != stored.get(name))
    assert stale == [], "run `make docs`"
