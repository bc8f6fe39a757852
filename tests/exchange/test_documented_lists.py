"""The lists of operators and layers in docs/formats.md are those that the code imports and exports."""

from __future__ import annotations

import pytest

from tests.exchange.documented_lists import SECTIONS, listed


@pytest.mark.parametrize("section", SECTIONS)
def test_the_documentation_lists_what_is_imported_and_exported(section: str) -> None:
    assert listed(section) == {line: list(names) for line, names in SECTIONS[section]().items()}, "run: make docs"
