"""The lists of operators and layers in docs/formats.md are those that the code imports and exports."""

from __future__ import annotations

import pytest

from tests.exchange.documented_lists import SECTIONS, listed


@pytest.mark.parametrize("section", SECTIONS)
def test_the_documentation_lists_imported_and_exported_types(section: str) -> None:
    assert listed(section) == {line: list(names) for line, names in SECTIONS[section]().items()}, "run: make docs"
