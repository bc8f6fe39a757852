"""`many.py LIST`: run the trainings of a list twice, and print how many MPI objects each round has created."""

import json
import sys
from pathlib import Path
from typing import Any

import netspec
from netspec.distributed import join
from netspec.distributed.communicators import mpi

created: list[str] = []


class Counted(mpi.MpiCommunicator):
    """Records the communicators and shared memory that are created."""

    def __init__(self, *members: Any) -> None:
        created.append("a communicator")
        super().__init__(*members)

    def share_memory(self, nbytes: int) -> Any:
        before = len(self._windows)
        actual = super().share_memory(nbytes)
        created.extend(["memory"] * (len(self._windows) - before))
        return actual


mpi.MpiCommunicator = Counted  # type: ignore[assignment, misc]
first, counts = join(), list[int]()
for number in range(2):
    for job in json.loads(Path(sys.argv[1]).read_text()):
        netspec.train(job["spec"], run_dir=Path(job["run_dir"]) / str(number), device="reference")
    counts.append(len(created))
if first.is_first:
    print(json.dumps({"counts": counts, "made": sorted(set(created))}))
