"""Workers that end as the first argument says, as commands of netspec do; the first one tells all process ids."""

import os
import signal
import sys
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from netspec.cli.failures import report
from netspec.cli.ranks import enter, leave
from netspec.errors import InputError, RunError
from netspec.parallel import Communicator, world
from netspec.parallel.activity import at_work, writes_to
from netspec.parallel.nccl import NOT_READY, gpus, has_come
from netspec.parallel.waiting import wait_until
from netspec.parallel.world import be_patient
from netspec.train.interrupt import Signals
from tests.backends.cuda import nccl
from tests.backends.cuda.fake import Machine

PAUSE = 0.05
HOW = sys.argv[1]


def act() -> int:
    """What worker 1 or all do, while the others wait."""
    workers = world()
    match HOW, workers.rank:
        case "agree", _:
            raise InputError("the spec is wrong")
        case "fail", 1:
            raise RunError("the disk is full")
        case "raise", 1:
            raise AssertionError("nobody catches it")
        case "leave", 1:
            sys.exit()  # Python's own end: it says nothing to the others
        case (("SIGKILL" | "SIGSEGV" | "SIGBUS" | "SIGSTOP"), 1):
            time.sleep(4 * PAUSE)
            os.kill(os.getpid(), getattr(signal, HOW))
        case "hang", 1:
            at_work(8, "sleeping")
            time.sleep(60)
        case "part", rank:  # ways: each waits for all on a communicator of its own
            from netspec.parallel.mpi import MpiCommunicator

            [MpiCommunicator() for _ in range(workers.size)][rank].barrier()
        case (("stuck" | "lost" | "broken"), rank):
            wait_for_gpu(workers, stuck=rank == 1 and HOW == "stuck")
        case "steps", _:
            return steps()
    workers.barrier()
    return 0


def wait_for_gpu(workers: Communicator, *, stuck: bool) -> None:
    """A GPU waits for that of another worker, by a library whose `abort` takes its time."""
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(2)
        made = nccl.install(patch, machine)

        def abort(_: object) -> None:
            os.write(2, f"{workers.rank} lets go\n".encode())
            time.sleep(60)

        patch.setattr(made.NcclCommunicator, "abort", abort)
        gpus(workers)
        if HOW == "lost" and workers.is_first:
            made.lost = "remote process exited"
        if stuck:
            at_work(9, "sleeping")
            time.sleep(60)
        machine.failed = 719 if HOW == "broken" else NOT_READY
        wait_until(partial(has_come, SimpleNamespace(ptr=0)))


def steps() -> int:
    """Steps until all were asked to stop; 130 then."""
    with Signals() as signals:
        for step in range(1000):
            at_work(step)
            stop = np.array([signals.stop is not None], np.float32)
            world().all_reduce(stop)
            if stop[0]:
                break
            if world().is_first and step == 3:
                print("steps", flush=True)
            time.sleep(PAUSE)
        while "slowly" in sys.argv:  # saves
            time.sleep(PAUSE)
    if world().is_first:
        print("saved", flush=True)
    return 130


if __name__ == "__main__":
    enter()
    if given := os.environ.get("PATIENCE"):
        be_patient(*map(float, given.split()))
    pids = world().gather(os.getpid())
    if world().is_first:
        print(*pids, "terminal" * sys.stdout.isatty(), flush=True)
    writes_to("runs/a b")
    at_work(7)
    status = 130
    try:
        status = act()
    except KeyboardInterrupt:
        if world().is_first:
            print("at once", flush=True)
    except (InputError, RunError) as error:
        status = report(error, ["train", *sys.argv[2:]], debug=False)
    sys.exit(leave(status))
