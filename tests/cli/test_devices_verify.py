"""`netspec devices --verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

from netspec.backends.verification import DeviceCheck, Verification
from tests.cli.conftest import Netspec


def test_command_prints_what_failed(netspec: Netspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    all_checks = (
        DeviceCheck("numba:PoolKernel", "kernel", "passed", 3),
        DeviceCheck("numba:ReduceKernel", "kernel", "failed", 1, "ReduceSum-2x3 (plain plain): 1 of 2 elements differ"),
        DeviceCheck("training of a sequence net in float32", "training", "passed", 1),
    )
    result = Verification("reference", False, all_checks, 2.0)
    monkeypatch.setattr("netspec.tools.devices.verify", lambda *_, **__: result)
    failed = netspec("devices", "--verify", "--device", "reference")
    assert failed.status == 1
    assert failed.out.splitlines() == [
        "checks of reference  passed  failed  skipped",
        "kernels of numba          1       1        0",
        "training runs             1       0        0",
        "failed: numba:ReduceKernel: ReduceSum-2x3 (plain plain): 1 of 2 elements differ",
        "2 checks passed, 1 failed, 0 skipped in 2 s",
    ]
    data = netspec("devices", "--verify", "--device", "reference", "--json").json
    assert (data["passed"], [check["status"] for check in data["checks"]]) == (False, ["passed", "failed", "passed"])
    (reference,) = (each for each in netspec("devices", "--json").json["devices"] if each["name"] == "reference")
    assert reference["verification"] == data
    assert "check of reference: 2 checks passed, 1 failed, 0 skipped in 2 s" in netspec("devices").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "Pool"], "error: --device and --only select what `--verify` checks"),
        (["--verify", "--device", "null"], "error: the device `null` only plans: it has no kernels to check"),
    ],
)
def test_options_that_do_not_fit_are_errors(words: list[str], message: str, netspec: Netspec) -> None:
    outcome = netspec("devices", *words)
    assert outcome.status == 2
    assert message in outcome.err
