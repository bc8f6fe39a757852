"""The nets of the model zoo, reduced to sizes for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netspec.errors import InputError
from netspec.schema.bundled import zoo_root
from netspec.schema.load import load_spec
from netspec.schema.specs.net import NetSpec
from netspec.schema.yaml.reader import read_yaml
from netspec.tools.checking.check import check

SLOW, EXHAUSTIVE = 1_000_000, 5_000_000
"""Parameters above which a test of a net takes longer than about 2 and 10 seconds."""
DEEP = {"mobilenet_v2", "moe_lm", "unet"}
"""Models of fewer parameters whose tests take long too; others have layers of the same kinds."""
SIZES = (64, 96, 128, 256, 299)
"""Heights and widths of images to try, for nets whose variable `size` is larger."""


def nets() -> list[Any]:
    """The net file of each model, marked by its cost: parameters of `pytest.mark.parametrize`."""
    return [pytest.param(path, marks=_marks(path)) for path in sorted(zoo_root().glob("*/net.yaml"))]


def small_net(path: Path) -> NetSpec:
    """Return the net with the smallest images that it accepts, and few classes."""
    declared = read_yaml(path).get("vars", {})
    overrides = ["vars.classes=3"] if "classes" in declared else []
    for size in (each for each in SIZES if each < declared.get("size", 0)):
        try:
            check(path, overrides=[*overrides, f"vars.size={size}"])
        except InputError:
            continue
        overrides.append(f"vars.size={size}")
        break
    spec = load_spec(path, overrides)
    assert isinstance(spec, NetSpec)
    return spec


def _marks(path: Path) -> list[pytest.MarkDecorator]:
    parameters = read_yaml(path.parent / "card.yaml")["parameters"]["count"]
    is_exhaustive = parameters > EXHAUSTIVE or path.parent.name in DEEP
    return [pytest.mark.exhaustive] if is_exhaustive else [pytest.mark.slow] if parameters > SLOW else []
