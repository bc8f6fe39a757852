"""All files that state the version of netspec agree."""

from __future__ import annotations

import re
import tomllib

from netspec import __version__
from tests.docs.test_prose import ROOT


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    changelog = re.search(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert citation
    assert changelog
    assert {project["version"], citation[1], changelog[1]} == {__version__}
