"""Impossibly large sizes are refused before anything large is computed, for every layer and field."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.registry.extreme_sizes import failures


@pytest.mark.exhaustive
def test_every_layer_is_planned_or_refused_at_extreme_sizes() -> None:
    """Tests one extreme value for the first sample of each class; the module's own command tests all of them."""
    totals: Counter[str] = Counter()
    assert list(failures(["--samples=1", "--extremes", "2147483647"], totals)) == []
    assert min(totals["accepted"], totals["refused"]) > 100
