"""What the text of modules says they register is what they do register."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from netspec.schema.specs.kinds import REGISTRIES

SCRIPT = """
import json, sys
import netspec.data, netspec.layers, netspec.distributed.strategies, netspec.solvers
from netspec.schema.specs.kinds import LAYERS, REGISTRIES
LAYERS["Flatten"]
few = [one for one in sys.modules if one.startswith("netspec.layers.")]
classes = {kind: {cls.model_fields[registry.tag].default: cls.__module__ for cls in registry}
           for kind, registry in REGISTRIES.items()}
known = {kind: {cls.model_fields[registry.tag].default: cls.__module__ for cls in registry.known()}
         for kind, registry in REGISTRIES.items()}
print(json.dumps([few, classes, known]))
"""


@pytest.fixture(scope="module")
def told() -> list:
    """What a fresh process knows after one layer, of all members declared, and of all registered."""
    found = json.loads(subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout)
    assert isinstance(found, list)
    return found


def test_a_module_is_imported_for_what_it_declares_alone(told: list):
    few = told[0]
    assert "netspec.layers.shape.reshape" in few
    assert not {
        "netspec.layers.recurrent.layers",
        "netspec.layers.convolution.conv",
        "netspec.layers.metrics.curves",
    } & {*few}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_all_that_is_registered_is_declared_and_the_other_way_round(told: list, kind: str):
    _, classes, known = told
    assert classes[kind]
    assert classes[kind] == known[kind]
