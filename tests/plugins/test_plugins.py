"""Classes from other packages, imported through entry points if a spec names them; adding a layer takes one file."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "package" / "shiny.py"
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GROUPS = {
    group.removeprefix("netspec."): next(iter(entries.items())) for group, entries in PROJECT["entry-points"].items()
}
"""The entry point of the package in each group, by the kind of its type."""
NET = """\
netspec: 1
inputs: {now: {shape: [8]}, later: {shape: [8]}}
layers: [{type: Dense, units: 8}, {type: Gate, name: gate}, {name: out, type: Dense, units: 8}]
losses: [{type: FourthPower, from: [out, later]}]
"""
TRAIN = """\
netspec: 1
net: net.yaml
data: {train: {source: waves, count: 32, batch_size: 8}}
solver: {type: Plain, learning_rate: 0.1}
train: {max_epochs: 2}
"""


PLAIN = {"NETSPEC_KERNELS": "reference"}
"""Environment in which no kernels are compiled, which takes seconds."""
PUBLIC_MODULES = {"netspec.graph", "netspec.layers", "netspec.training"}
"""The modules that packages of others import from, as CONTRIBUTING says."""


def test_the_package_imports_only_from_public_modules():
    imported = {node.module for node in ast.walk(ast.parse(PACKAGE.read_text())) if isinstance(node, ast.ImportFrom)}
    assert {module for module in imported if module and module.startswith("netspec")} == PUBLIC_MODULES
    assert "import netspec" not in PACKAGE.read_text().splitlines()


@pytest.mark.parametrize("name", sorted(PUBLIC_MODULES))
def test_public_modules_document_all_that_they_offer(name):
    module = import_module(name)
    for each in module.__all__:
        assert getattr(module, each) is not None
        assert f"`{each}`" in str(module.__doc__) or f"`@{each}.register`" in str(module.__doc__), each


def test_every_op_is_in_the_graph_module():
    import netspec.graph

    assert {"Sigmoid", "Conv", "CTCLoss", "TopK", "Op"} <= set(dir(netspec.graph))
    assert netspec.graph.Sigmoid.__module__ == "netspec.graph.ops.unary"
    with pytest.raises(AttributeError, match="has no attribute 'Sigmoids'"):
        netspec.graph.Sigmoids  # noqa: B018


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages, and a working folder with a net and a training that need one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "train.yaml").write_text(TRAIN)
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def install(site: Path, name: str, groups: dict[str, tuple[str, str]], module: str = "") -> None:
    """Write what pip installs for a package: its module, and a .dist-info with its entry points."""
    if module:
        (site / f"{name}.py").write_text(module)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[netspec.{group}]\n{entry} = {value}\n" for group, (entry, value) in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))


def netspec(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with the packages of `site` installed."""
    paths = [str(site), str(Path(__file__).parents[2])]
    environment = {**os.environ, **PLAIN, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "netspec", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.mark.slow
def test_a_package_adds_a_layer_a_loss_a_solver_and_a_source(site):
    shutil.copy(PACKAGE, site)
    install(site, "shiny", GROUPS)
    done = netspec(site, "train", "train.yaml", "--run-dir", "run", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "done"
    losses = [event["loss"] for event in events if event["event"] == "log"]
    assert losses[-1] < losses[0]
    schema = json.loads(netspec(site, "schema", "net").stdout)
    assert "layer-Gate" in schema["$defs"]
    assert "loss-FourthPower" in schema["$defs"]


def test_a_layer_of_a_package_reports_inputs_that_do_not_fit(site):
    shutil.copy(PACKAGE, site)
    install(site, "shiny", GROUPS)
    (site.parent / "net.yaml").write_text(NET.replace("now: {shape: [8]}", "now: {shape: [2, 8]}"))
    done = netspec(site, "check", "net.yaml")
    assert done.returncode == 2
    assert "net.yaml:3:35: error: layer `gate` (Gate): the input is not a vector of features" in done.stderr


def test_a_package_adds_a_callback(site):
    shutil.copy(PACKAGE, site)
    install(site, "shiny", GROUPS)
    (site.parent / "train.yaml").write_text(TRAIN + "callbacks: [{type: StepCounter, every: 4}]\n")
    done = netspec(site, "train", "train.yaml", "--run-dir", "run", "--json")
    assert done.returncode == 0, done.stderr
    notes = [event["message"] for event in map(json.loads, done.stdout.splitlines()) if event["event"] == "note"]
    assert notes == ["4 steps", "8 steps"]


def test_without_the_package_its_types_are_unknown(site):
    done = netspec(site, "check", "net.yaml")
    assert done.returncode == 2
    assert "net.yaml:3:42: error: unknown layer 'Gate'" in done.stderr
    assert "net.yaml:4:17: error: unknown loss 'FourthPower'" in done.stderr


def test_a_package_is_imported_only_if_a_spec_names_its_types(site):
    install(site, "noisy", {"layers": ("Noise", "noisy:Noise")}, "raise SystemError('imported')\n")
    (site.parent / "net.yaml").write_text(
        NET.replace("Gate", "Activation, activation: relu").replace("FourthPower", "MeanSquaredError")
    )
    assert netspec(site, "check", "net.yaml").returncode == 0
    (site.parent / "net.yaml").write_text(NET.replace("Gate", "Noises").replace("FourthPower", "MeanSquaredError"))
    done = netspec(site, "check", "net.yaml")
    assert done.returncode == 2
    assert "hint: did you mean `Noise`?" in done.stderr  # its name is known without importing its code


BROKEN = {
    "that raises": ("raise RuntimeError('no such device')\n", "RuntimeError: no such device"),
    "without the class": ("Other = 1\n", "AttributeError"),
    "with something else": ("class Gate:\n    pass\n", "a class on `LayerSpec` with `type: Literal"),
    "of another name": (
        PACKAGE.read_text().replace('type: Literal["Gate"] = "Gate"', 'type: Literal["Port"] = "Port"'),
        "is not a layer of that name",
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == "that raises" else pytest.mark.exhaustive) for case in BROKEN]
)
def test_a_broken_package_is_reported_at_the_line_that_names_its_type(site, case):
    module, words = BROKEN[case]
    install(site, "broken", {"layers": ("Gate", "broken:Gate")}, module)
    done = netspec(site, "check", "net.yaml")
    assert done.returncode == 2
    assert "net.yaml:3:42: error: `Gate` of the package broken 1.0 " in done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    listed = netspec(site, "schema", "net")
    assert (listed.returncode, "Traceback" in listed.stderr) == (2, False)
    assert "broken 1.0" in listed.stderr


@pytest.mark.parametrize(("entry", "packages"), [("Dense", "netspec and one 1.0"), ("Gate", " and ")])
def test_names_that_clash_are_an_error(site, entry, packages):
    install(site, "one", {"layers": (entry, "one:Gate")}, "")
    if entry == "Gate":
        install(site, "two", {"layers": (entry, "two:Gate")}, "")
    done = netspec(site, "check", "net.yaml")
    assert done.returncode == 2
    assert f"net.yaml:3:42: error: several packages add `{entry}`" in done.stderr
    assert packages in done.stderr


ONE_FILE = '''
from typing import ClassVar, Literal

from netspec.graph import Value
from netspec.layers import LAYERS, Builder, LayerSpec, Sample


@LAYERS.register
class Cube(LayerSpec):
    """The third power of each number: (N, …) → (N, …)."""

    type: Literal["Cube"] = "Cube"
    samples: ClassVar = (Sample.of((2, 3)),)

    def build(self, builder: Builder, x: Value) -> Value:
        """x: (N, …) → (N, …)."""
        return x * x * x
'''
IN_THE_ROOM = """
import sys
import netspec.layers
netspec.layers.__path__.append("site")
from netspec.cli import main
from netspec.tools.reference import pages
assert main(["check", "net.yaml"]) == 0
assert main(["plan", "net.yaml", "--json"]) == 0
netspec.load("net.yaml").save_weights("weights.h5")
assert main(["export", "net.yaml", "--weights", "weights.h5", "--output", "net.onnx"]) == 0
assert any("Cube" in text for text in pages("netspec.layers.cube.").values())
"""


@pytest.mark.slow
def test_adding_a_layer_touches_one_file(site):
    """A file in the folder of layers is enough: the layer is checked, planned, exported and documented."""
    (site / "cube.py").write_text(ONE_FILE)
    (site.parent / "net.yaml").write_text(NET.replace("Gate", "Cube").replace("FourthPower", "MeanSquaredError"))
    environment = {**os.environ, **PLAIN, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", IN_THE_ROOM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
