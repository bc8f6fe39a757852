"""Runs trainings in order: a JSON file lists the arguments of each.

With `of` a training goes on in a copy of that run's directory, from the checkpoint before the last one. With `stops`
one rank is asked to stop after a step.
"""

from __future__ import annotations

import json
import shutil
import sys
from math import inf
from pathlib import Path
from typing import Any

import netspec
from netspec.distributed import join
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


for job in json.loads(Path(sys.argv[1]).read_text()):
    if (of := job.pop("of", None)) is not None:
        if join().is_first:
            run = Path(shutil.copytree(of, job["run_dir"]))
            (run / "weights.h5").unlink()
            max((run / "checkpoints").iterdir()).unlink()
        join().barrier()
    if (stops := job.pop("stops", None)) is not None:
        job["callbacks"] = [StopAt(**stops)]
    try:
        netspec.train(job.pop("spec"), **job)
    except Interrupted as stopped:
        assert stops is not None
        if join().is_first:
            print(json.dumps({"run": job["run_dir"], "stopped": stopped.step, "reason": stopped.reason}))
    except NetspecError as error:
        assert ACTIVITY.gives_up_at == inf, "workers would wait no more in what comes next"
        if join().is_first:
            print(json.dumps({"run": job["run_dir"], "error": error.render()}))
