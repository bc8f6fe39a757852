"""The check of a device in subprocesses, with stand-ins that crash, hang, compute wrongly and run out of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netspec.backends.verification import TimeLimits, Verification, verify

PROGRAM = """
import json, os, sys, time
request = json.loads(sys.argv[1])
plan = ["a:Good", "a:Bad", "a:Last", "training of a net"]
def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)
def check(name, status="passed", reason=None, transient=False):
    kind = "training" if name.startswith("training") else "kernel"
    fields = {"name": name, "kind": kind, "status": status, "calls": 1, "reason": reason}
    emit("check", check=fields, transient=transient)
assert os.environ["NETSPEC_VERIFY"] == "off"
START
emit("plan", checks=[[name, "training" if name.startswith("training") else "kernel"] for name in plan])
for name in plan:
    if name not in request["done"]:
        emit("begin", name=name, kind="training" if name.startswith("training") else "kernel")
        emit("call", call="Add-2x3")
        if name == "a:Bad":
            BAD
        check(name)
emit("done")
"""
LIMITS = TimeLimits(20, 0.5)
LAST = ["a:Last", "training of a net"]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Verification]:
    """Verify with a program that misbehaves at one check."""

    def verified(bad: str = "pass", start: str = "", limits: TimeLimits = LIMITS) -> Verification:
        (tmp_path / "program.py").write_text(PROGRAM.replace("BAD", bad).replace("START", start))
        return verify("gpu", program=[str(tmp_path / "program.py")], limits=limits)

    return verified


def test_all_checks_pass(run: Callable[..., Verification]) -> None:
    result = run()
    assert result.passed
    assert [check.name for check in result.checks] == ["a:Good", "a:Bad", *LAST]
    assert (result.distrust_reason, result.disabled_kernels, result.warnings()) == (None, {}, [])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("time.sleep(60)", "Add-2x3: no answer in 0 s"),
        ("os.abort()", "Add-2x3: the process was killed by SIGABRT"),
        ("sys.exit('illegal memory access')", "Add-2x3: the process ended with status 1: illegal memory access"),
        ("check(name, 'failed', 'wrong'); emit('restart'); sys.exit()", "wrong"),
    ],
    ids=["hang", "crash", "exit", "unusable device"],
)
def test_checks_after_a_crash_or_hang_run_in_a_new_process(
    bad: str, reason: str, run: Callable[..., Verification]
) -> None:
    result = run(bad)
    assert [(check.name, check.status) for check in result.checks] == [
        ("a:Good", "passed"), ("a:Bad", "failed"), *((name, "passed") for name in LAST),
    ]  # fmt: skip
    assert result.disabled_kernels == {"a:Bad": f"it failed the check of this device: {reason}"}
    assert result.distrust_reason is None
    assert result.final
    (warning,) = result.warnings()
    assert warning == (
        f"a:Bad is disabled, because it failed the check of `gpu`: {reason}; "
        "please report it with the output of `netspec devices --verify --device gpu --json`"
    )


def test_lack_of_memory_is_not_held_against_a_kernel(run: Callable[..., Verification]) -> None:
    result = run("check(name, 'skipped', 'out of memory', transient=True); continue")
    assert (result.passed, result.disabled_kernels, result.final) == (True, {}, False)


def test_checks_that_do_not_fit_into_the_time_are_skipped(run: Callable[..., Verification]) -> None:
    result = run("emit('done'); sys.exit()")
    assert [(check.name, check.status) for check in result.checks][1:] == [
        (name, "skipped") for name in ("a:Bad", *LAST)
    ]
    assert result.checks[1].reason == "no time was left of 20 s"


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("time.sleep(60)", "no answer in 1 s"),
        ("sys.exit('no driver')", "the process ended with status 1: no driver"),
        ("emit('unusable', reason='no GPU was found'); sys.exit()", "no GPU was found"),
    ],
)
def test_device_that_cannot_be_opened_is_a_problem(start: str, problem: str, run: Callable[..., Verification]) -> None:
    result = run(start=start, limits=TimeLimits(1, 0.1))
    assert (result.problem, result.distrust_reason, result.final, result.checks) == (problem, problem, False, ())
    assert not result.passed
