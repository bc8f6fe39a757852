"""A wheel of netspec contains the package, its type marker and the complete model zoo."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build a wheel from this checkout with the installed build backend, without network."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    process = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (wheel_file,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel_file)


def files_of(folder: str) -> set[str]:
    """Return the files in the checkout's `folder`, relative to it, without Python's caches."""
    top = ROOT / folder
    files = (path.relative_to(top) for path in top.rglob("*") if path.is_file())
    return {path.as_posix() for path in files if "__pycache__" not in path.parts}


def test_the_zoo_is_inside_the_package(wheel: zipfile.ZipFile) -> None:
    shipped = set(wheel.namelist())
    assert {f"netspec/model_zoo/{name}" for name in files_of("model_zoo")} <= shipped


def test_every_module_and_the_type_marker_are_shipped(wheel: zipfile.ZipFile) -> None:
    shipped = set(wheel.namelist())
    assert {f"netspec/{name}" for name in files_of("netspec")} <= shipped
    assert "netspec/py.typed" in shipped


def test_nothing_else_is_shipped(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel.namelist()} == {"netspec"}


def test_the_command_is_declared(wheel: zipfile.ZipFile) -> None:
    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "netspec = netspec.cli:main" in wheel.read(entry).decode()
