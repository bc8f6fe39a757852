"""Run trainings in order: a JSON file lists the arguments of each.

With `of`, a training continues in a copy of that run, from its checkpoint before the last. With `stops`, one rank is
asked to stop after a step; with `fails`, a callback of one rank raises an exception after a step.
"""

from __future__ import annotations

import json
import shutil
import sys
from math import inf
from pathlib import Path
from typing import Any

import netspec
from netspec.distributed import join, session
from netspec.distributed.monitoring.activity import ACTIVITY
from netspec.errors import NetspecError
from netspec.training.run import Interrupted


class StopAt(netspec.Callback):
    """Asks one rank to stop after a step."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = rank, step

    def on_step_end(self, training: Any) -> None:
        if (join().rank, training.step) == (self.rank, self.step):
            training.request_stop("the test")


class FailAt(netspec.Callback):
    """Raises an exception on one rank after a step."""

    def __init__(self, rank: int, step: int) -> None:
        self.rank, self.step = rank, step

    def on_step_end(self, training: Any) -> None:
        if (join().rank, training.step) == (self.rank, self.step):
            raise ValueError("the service does not answer")


def own_error(error: NetspecError) -> str:
    """Return the error of the first worker that has failed by itself. Collective."""
    errors = [text for text in join().all_gather_objects(error.render()) if PEER_FAILURE not in text]
    return errors[0] if errors else error.render()


PEER_FAILURE = "another worker failed without a message"
# Do not wait for the end of the job: a worker that fails does not end it here.
session.FAILURE_TIMEOUT = 0


for job in json.loads(Path(sys.argv[1]).read_text()):
    if (of := job.pop("of", None)) is not None:
        if join().is_first:
            run = Path(shutil.copytree(of, job["run_dir"]))
            (run / "weights.h5").unlink()
            max((run / "checkpoints").iterdir()).unlink()
        join().barrier()
    if (stops := job.pop("stops", None)) is not None:
        job["callbacks"] = [StopAt(**stops)]
    if (fails := job.pop("fails", None)) is not None:
        job["callbacks"] = [FailAt(**fails)]
    try:
        netspec.train(job.pop("spec"), **job)
    except Interrupted as stopped:
        assert stops is not None
        if join().is_first:
            print(json.dumps({"run": job["run_dir"], "stopped": stopped.step, "reason": stopped.reason}))
    except NetspecError as error:
        assert ACTIVITY.gives_up_at == inf, "workers would wait no more in what comes next"
        message = own_error(error)
        if join().is_first:
            print(json.dumps({"run": job["run_dir"], "error": message}))
