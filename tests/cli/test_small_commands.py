"""`netspec schema` and `netspec devices`."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from netspec.backends.device_registry import DEVICES
from netspec.errors import install_command
from tests.backends.cuda.fake import Machine
from tests.backends.cuda.nccl import install


@pytest.mark.parametrize("words", [(), ("net",), ("train",)])
@pytest.mark.slow
def test_schema_is_json_with_docs(netspec, words):
    result = netspec.ok("schema", *words)
    assert "$schema" in result.json
    assert "Number of output channels" in result.out  # the docs of a field, as editors show them


def test_devices(netspec, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # the user's own cache may have results of `devices --verify`
    result = netspec("devices", "--json").json["devices"]
    assert [device["name"] for device in result] == list(DEVICES)
    assert [device["name"] for device in result if device["auto"]] == ["cpu"]
    lines = netspec("devices").out.splitlines()
    assert lines[0].split() == ["device", "kernels"]
    assert lines[1 + len(DEVICES)] == ""
    assert any(line.startswith("reference  NumPy ") for line in lines)


def test_devices_print_the_mpi_that_starts_workers(netspec, monkeypatch, tmp_path):
    result = netspec("devices", "--json").json["mpi"]
    lines = netspec("devices").out.splitlines()
    assert {"mpi4py", "library", "mpiexec", "unavailable", "job"} == set(result)
    assert result["job"] is None
    assert "workers    one worker, which does not communicate" in lines
    for name in ("mpi4py", "library", "mpiexec"):
        assert (result[name] is None) <= (name in result["unavailable"] or name == "library")
        assert any(line.startswith(name) for line in lines) == (
            result[name] is not None or name in result["unavailable"]
        )
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no library of that name')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = netspec("devices", "--json").json["mpi"]
    assert result["unavailable"]["mpi4py"] == "ImportError: no library of that name"
    assert install_command("mpi") in netspec("devices").out


def test_devices_print_the_nccl_without_a_gpu(netspec, monkeypatch):
    installed_version = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "2.28.9" if name == "nvidia-nccl-cu12" else installed_version(name)
    )
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert netspec("devices", "--json").json["nccl"] == "2.28.9 of nvidia-nccl-cu12, which no CuPy loads"
    install(monkeypatch, Machine(0))
    assert netspec("devices", "--json").json["nccl"] == "2.27.7, which CuPy loads"
    (line,) = (line for line in netspec("devices").out.splitlines() if line.startswith("NCCL"))
    assert line.split(maxsplit=1)[1] == "2.27.7, which CuPy loads"


def test_unavailable_kernels_are_listed_with_the_reason(netspec, monkeypatch):
    monkeypatch.setenv("NETSPEC_ONEDNN", "off")
    (cpu,) = (device for device in netspec("devices", "--json").json["devices"] if device["name"] == "cpu")
    assert cpu["unavailable"] == {"onednn": "NETSPEC_ONEDNN=off"}
    assert "onednn" not in cpu["kernels"]
    assert "onednn     missing: NETSPEC_ONEDNN=off" in netspec("devices").out


@pytest.mark.slow
def test_the_reference_is_written_as_pages(netspec, tmp_path):
    result = netspec.ok("schema", "--docs", tmp_path / "reference")
    pages = len(list((tmp_path / "reference").rglob("*.md")))
    assert result.out == f"{pages} pages below {tmp_path / 'reference'}\n"
    refused = netspec("schema", "net", "--docs", tmp_path / "other")
    assert refused.status == 2
    assert "hint: leave out `net`" in refused.err
