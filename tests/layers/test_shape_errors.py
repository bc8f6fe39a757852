"""Golden text of shape errors: each names the layer, its line, the expected shape, and the layers before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netspec.compile import build
from netspec.errors import SpecError
from netspec.schema.load import load_net

GOLDEN = Path(__file__).parent / "golden"


def test_all_shape_errors_of_a_net_match_the_golden_text(monkeypatch):
    monkeypatch.chdir(GOLDEN)
    spec = load_net("misfits.yaml")
    with pytest.raises(SpecError) as caught:
        build(spec, 64, training=True)
    assert caught.value.render() + "\n" == (GOLDEN / "misfits.txt").read_text(encoding="utf-8")
