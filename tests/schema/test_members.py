"""The classes that are declared in the text of a module are those that it registers."""

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
few = [module for module in sys.modules if module.startswith("netspec.layers.")]
classes = {kind: {cls.model_fields[registry.tag].default: cls.__module__ for cls in registry}
           for kind, registry in REGISTRIES.items()}
known = {kind: {cls.model_fields[registry.tag].default: cls.__module__ for cls in registry.registered()}
         for kind, registry in REGISTRIES.items()}
print(json.dumps([few, classes, known]))
"""


@pytest.fixture(scope="module")
def process_members() -> list:
    """Return, from a new process: modules imported for one layer, declared classes, registered classes."""
    members = json.loads(subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout)
    assert isinstance(members, list)
    return members


@pytest.mark.slow
def test_only_the_modules_of_a_used_layer_are_imported(process_members: list):
    few = process_members[0]
    assert "netspec.layers.shape.reshape" in few
    assert not {
        "netspec.layers.recurrent.layers",
        "netspec.layers.convolution.conv",
        "netspec.layers.metrics.curves",
    } & {*few}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_declared_and_registered_members_are_the_same(process_members: list, kind: str):
    _, classes, registered = process_members
    assert classes[kind]
    assert classes[kind] == registered[kind]
