"""The end of jobs of several workers: finished, failed, killed, stopped, hanging, or interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from netspec.distributed.communicators.shared_memory import SHM_FOLDER
from netspec.distributed.launcher.control_socket import WorkerConnection
from netspec.distributed.launcher.launch import _probable_cause, _signal_name, _worker_status
from netspec.distributed.monitoring.failure_reports import FailureReport, FailureReports
from tests.distributed.conftest import QUICK

AGAIN = "to continue: netspec train 'runs/a b/spec.yaml' --resume"
WITH = {"netspec": " --workers 3", "mpiexec": ""}
"""Options at the end of the command that continues the training, by the program that started the workers."""
BOTH = pytest.mark.parametrize("by", ["netspec", pytest.param("mpiexec", marks=pytest.mark.slow)])
RARELY_BOTH = pytest.mark.parametrize("by", ["netspec", pytest.param("mpiexec", marks=pytest.mark.exhaustive)])


def test_finished_workers_exit_with_0(jobs) -> None:
    job = jobs(3, "ends.py", "well").begun()
    assert len(set(job.pids)) == 3
    assert (job.end(), job.out, job.err) == (0, "", "")


@RARELY_BOTH
@pytest.mark.slow
def test_error_of_all_workers_is_reported_once(jobs, by: str) -> None:
    job = jobs(3, "ends.py", "agree", "--json", by=by).begun()
    assert job.end() == 2
    assert job.err == "error: the spec is wrong\n"
    assert json.loads(job.out)["problems"][0]["message"] == "the spec is wrong"


@pytest.mark.slow
def test_gpu_that_waits_forever_is_aborted(jobs) -> None:
    """Each group of GPUs is aborted, even if the library takes long."""
    job = jobs(2, "ends.py", "stuck", variables=QUICK).begun()
    assert job.end() == 1
    assert re.search(
        r"^(0 lets go\n){2}error: rank 0 .* has waited for \d+ s, for rank 1 \(.*step 9, sleeping", job.err
    )


@pytest.mark.slow
def test_nccl_errors_are_reported(jobs) -> None:
    job = jobs(2, "ends.py", "lost").begun()
    assert job.end() == 1
    words = "rank 0 .*error: NCCL has lost another worker's GPU\n  got: remote process exited\n"
    assert re.search(words, job.err)


@pytest.mark.slow
def test_gpu_failure_is_reported(jobs) -> None:
    """CUDA's status of an event is neither success nor "not ready"."""
    job = jobs(2, "ends.py", "broken").begun()
    assert job.end() == 1
    assert "error: the GPU has failed\n  got: 719\n" in job.err


def _hwloc_files() -> set[Path]:
    """Files with the topology of the machine, which hydra removes unless MPI aborts the job."""
    return set(Path("/tmp").glob("hydra_hwloc_xmlfile_*"))


@BOTH
def test_error_of_one_worker_is_reported_with_its_rank(jobs, by: str) -> None:
    before = _hwloc_files()
    job = jobs(3, "ends.py", "fail", by=by).begun()
    leftover_files = _hwloc_files() - before  # the job's own files, and those of jobs of other tests
    assert job.end() == 1
    assert by == "mpiexec" or not leftover_files or leftover_files - _hwloc_files(), "the launcher has tidied up"
    assert re.fullmatch(rf"rank 1 \(\S+\): error: the disk is full\n  hint: {AGAIN}{WITH[by]}\n", job.err)
    assert job.out == ""


@pytest.mark.parametrize(
    ("name", "likely"),
    [
        ("SIGKILL", r": the machine may have run out of memory\n  hint: "),
        ("SIGBUS", r": the shared memory may have been full, .*\n(?:  got: .*\n)?  hint: .*--shm-size 4g`; "),
    ],
)
@pytest.mark.slow
def test_a_worker_that_dies_ends_the_job(jobs, name: str, likely: str) -> None:
    job = jobs(3, "ends.py", name).begun()
    shared = [line.split(maxsplit=5)[5] for line in Path(f"/proc/{job.pids[2]}/maps").read_text().splitlines()
              if "/mpich_shm_" in line] if Path("/proc/self/maps").exists() else []  # fmt: skip
    assert job.end() == 1
    assert re.search(
        rf"error: worker 1 \(pid {job.pids[1]}\) was ended by {name}{likely}{AGAIN} --workers 3\n", job.err
    ), job.err
    assert job.out == ""
    assert all(memory.endswith(" (deleted)") for memory in shared), "its name would be left"


@pytest.mark.parametrize(
    ("started", "message"),
    [(False, "error: no such folder"), (True, "rank 0 (h1): error: no such folder\n  hint: to continue: x")],
)
def test_worker_0_reports_for_all_until_training_starts(started: bool, message: str) -> None:
    words = FailureReports(3)
    words.add(FailureReport(0, "h1", 2, "error: no such folder"))
    assert words.summarize("to continue: x", started=started) == ("", message, 2)


def test_the_signal_of_a_crashed_worker_is_reported() -> None:
    near, far = socket.socketpair()
    worker = WorkerConnection(far)
    with near, far:
        near.sendall(b'{"pid": 12, "ra')
        near.sendall(b'Fatal Python error: Bus error\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py"\n')
        assert worker.listen()
    assert (worker.crashed, worker.pid) == ("SIGBUS", None)


def test_a_bus_error_is_reported_with_its_likely_cause() -> None:
    output = "=   PID 12 RUNNING AT localhost\n=   EXIT CODE: 7\n=   CLEANING UP\nEXIT STRING: Terminated (signal 15)\n"
    assert _signal_name(_worker_status(12, output, 15)) == "SIGBUS"
    assert _signal_name(_worker_status(1, output, 15)) == "SIGTERM"  # the exit status belongs to another worker
    likely, actual, hint = _probable_cause("SIGBUS")
    assert likely.startswith(": the shared memory may have been full")
    assert (actual is not None) == SHM_FOLDER.is_dir()
    assert actual is None or re.match(r"[\d,.]+ MB of [\d,.]+ MB are free in /dev/shm ", actual)
    assert hint is not None
    assert "--shm-size" in hint


@RARELY_BOTH
@pytest.mark.slow
def test_a_worker_that_is_stopped_ends_the_job(jobs, by: str) -> None:
    job = jobs(3, "ends.py", "SIGSTOP", by=by, variables=QUICK).begun()
    began = time.monotonic()
    assert job.end() == 1
    assert time.monotonic() - began > 1.5
    assert re.search(
        rf"error: rank 1 \(host \S+, pid {job.pids[1]}; last known: step \d, [^)]+\) has not answered for 3 s", job.err
    )
    assert f"{AGAIN}{WITH[by]}\n" in job.err


@pytest.mark.slow
def test_hanging_worker_ends_the_job(jobs) -> None:
    job = jobs(3, "ends.py", "hang", variables=QUICK).begun()
    assert job.end() == 1
    assert re.search(r"error: rank 0 .* has waited for \d s, for rank 1 .*last known: step 8, sleeping\)", job.err)


@pytest.mark.slow
def test_uncaught_error_ends_the_job_immediately(jobs) -> None:
    """For example an error in a program that calls `netspec.train`, or a failed assertion of a test."""
    job = jobs(3, "ends.py", "raise").begun()
    began = time.monotonic()
    assert job.end() == 1
    assert time.monotonic() - began < 10
    assert re.match(r"rank 1 \(\S+\): Traceback \(most recent call last\):\n", job.err)
    assert f"AssertionError: nobody catches it\n  hint: {AGAIN} --workers 3\n" in job.err
    assert job.err.count("Traceback") == 1


@pytest.mark.slow
def test_finished_worker_is_given_up_like_a_silent_one(jobs) -> None:
    job = jobs(3, "ends.py", "leave", variables={"PATIENCE": "3 600"}).begun()
    assert job.end() == 1
    assert re.search(r"error: rank \d .* has waited for \d s, for rank 1 .*last known: step 7, done\)", job.err)


@pytest.mark.slow
def test_workers_that_wait_for_different_things_end_the_job(jobs) -> None:
    job = jobs(2, "ends.py", "part", variables=QUICK).begun()
    assert job.end() == 1
    assert "for no worker: each waits for something else" in job.err


@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_the_first_request_to_stop_ends_the_step_on_all(jobs, name: str) -> None:
    job = jobs(2, "ends.py", "steps").begun()
    assert job.line() == "steps"
    job.process.send_signal(getattr(signal, name))
    assert job.end() == 130
    assert job.out == "saved\n"
    resumed = "Ctrl-C" if name == "SIGINT" else name
    assert job.err == f"finishing this step, then saving; {resumed} again stops now\n"


@pytest.mark.slow
def test_the_second_request_to_stop_ends_immediately(jobs) -> None:
    job = jobs(2, "ends.py", "steps", "slowly").begun()
    assert job.line() == "steps"
    job.process.send_signal(signal.SIGINT)
    assert "finishing this step" in job.process.stderr.readline()
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    assert (job.out, job.err) == ("at once\n", "")


@pytest.mark.slow
def test_workers_end_with_the_command_that_started_them(jobs) -> None:
    job = jobs(2, "ends.py", "steps").begun()
    assert job.line() == "steps"
    job.process.kill()
    assert job.end() == -signal.SIGKILL


@pytest.mark.slow
def test_a_terminal_is_still_recognized_as_a_terminal(jobs) -> None:
    parent_end, child_end = pty.openpty()
    job = jobs(2, "ends.py", "well", stdout=child_end)
    os.close(child_end)
    with os.fdopen(parent_end) as terminal:
        words = terminal.readline().split()
    assert words[-1] == "terminal"
    job.pids = [int(word) for word in words[:-1]]
    assert job.end() == 0
