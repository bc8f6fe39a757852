"""Workers that end as the first argument says, like commands of netspec; the first worker prints the process ids."""

import os
import signal
import sys
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from netspec.backends.cuda.execution_queue import NOT_READY, is_complete
from netspec.cli.failures import report
from netspec.cli.workers import join_job, leave_job
from netspec.distributed import Communicator, world
from netspec.distributed.communicators.nccl import nccl_group
from netspec.distributed.monitoring.activity import report_activity, report_run_dir, wait_until
from netspec.distributed.world import set_timeouts
from netspec.errors import InputError, RunError
from netspec.training.signals import Signals
from tests.backends.cuda import nccl
from tests.backends.cuda.fake import Machine

PAUSE = 0.05
HOW = sys.argv[1]


def act() -> int:
    """Run the scenario on worker 1 or on all workers, while the others wait."""
    workers = world()
    match HOW, workers.rank:
        case "agree", _:
            raise InputError("the spec is wrong")
        case "fail", 1:
            raise RunError("the disk is full")
        case "raise", 1:
            raise AssertionError("nobody catches it")
        case "leave", 1:
            sys.exit()  # the normal end of Python, which does not notify the other workers
        case (("SIGKILL" | "SIGSEGV" | "SIGBUS" | "SIGSTOP"), 1):
            time.sleep(4 * PAUSE)
            os.kill(os.getpid(), getattr(signal, HOW))
        case "hang", 1:
            report_activity(8, "sleeping")
            time.sleep(60)
        case "part", rank:  # each waits for all others on a different communicator
            from netspec.distributed.communicators.mpi import MpiCommunicator

            [MpiCommunicator() for _ in range(workers.size)][rank].barrier()
        case (("stuck" | "lost" | "broken"), rank):
            wait_for_gpu(workers, stuck=rank == 1 and HOW == "stuck")
        case "steps", _:
            return steps()
    workers.barrier()
    return 0


def wait_for_gpu(workers: Communicator, *, stuck: bool) -> None:
    """Wait for a simulated GPU that waits for another worker's; aborting its NCCL group takes long."""
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(2)
        library = nccl.install(patch, machine)

        def abort(_: object) -> None:
            os.write(2, f"{workers.rank} lets go\n".encode())
            time.sleep(60)

        patch.setattr(library.NcclCommunicator, "abort", abort)
        nccl_group(workers)
        if HOW == "lost" and workers.is_first:
            library.lost = "remote process exited"
        if stuck:
            report_activity(9, "sleeping")
            time.sleep(60)
        machine.failed = 719 if HOW == "broken" else NOT_READY
        wait_until(partial(is_complete, SimpleNamespace(ptr=0)))


def steps() -> int:
    """Run steps until a stop is requested; return 130."""
    with Signals() as signals:
        for step in range(1000):
            report_activity(step)
            stop = np.array([signals.stop is not None], np.float32)
            world().all_reduce(stop)
            if stop[0]:
                break
            if world().is_first and step == 3:
                print("steps", flush=True)
            time.sleep(PAUSE)
        while "slowly" in sys.argv:  # simulates saving
            time.sleep(PAUSE)
    if world().is_first:
        print("saved", flush=True)
    return 130


if __name__ == "__main__":
    join_job()
    if patience := os.environ.get("PATIENCE"):
        set_timeouts(*map(float, patience.split()))
    pids = world().all_gather_objects(os.getpid())
    if world().is_first:
        print(*pids, "terminal" * sys.stdout.isatty(), flush=True)
    report_run_dir("runs/a b")
    report_activity(7)
    status = 130
    try:
        status = act()
    except KeyboardInterrupt:
        if world().is_first:
            print("at once", flush=True)
    except (InputError, RunError) as error:
        status = report(error, ["train", *sys.argv[2:]], debug=False)
    sys.exit(leave_job(status))
