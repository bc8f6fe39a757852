"""`Mpiexec`: the program of an MPI that starts processes, found on this machine and spoken to in its own options."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAMES = ("mpiexec", "mpirun", "mpiexec.hydra")
ANSWERS_WITHIN = 20
"""Seconds that a program may take to say its version."""
OUTER = re.compile(r"(PMI|HYDI|OMPI_COMM|PMIX_(?!MCA_)|MPI_LOCAL)\w*|OMPI_UNIVERSE_SIZE|PRTE_LAUNCHED")
"""Names of what a launcher told this process about a job of its own, which is no business of the next one."""


@dataclass(frozen=True)
class Mpiexec:
    """An `mpiexec`, and whose it is: `hydra` (MPICH's, Intel's), `openmpi`, or another's that knows `-n` alone."""

    path: str
    kind: str
    version: str

    def command(self, workers: int, program: list[str], *, root: bool) -> list[str]:
        """The command that starts a program `workers` times on this machine, more often than it has cores if need be.

        Neither a batch system's hosts nor its way to start processes is taken up; nothing is bound to a core, since
        OMP_NUM_THREADS says how many cores each worker may fill.
        """
        match self.kind:
            case "hydra":
                options = ["-rmk", "user", "-launcher", "fork", "-hosts", "localhost"]
            case "openmpi":
                slots = ["--host", f"localhost:{workers}", "--bind-to", "none"]
                options = [*slots, *(["--allow-run-as-root"] if root else [])]
            case _:
                options = []
        return [self.path, *options, "-n", str(workers), *program]


def find_mpiexec(environment: Mapping[str, str] = os.environ) -> Mpiexec | None:
    """The one beside the Python that runs, whose library mpi4py finds first, else that of the path, if there is one."""
    beside = str(Path(sys.executable).parent)
    for folders in (beside, environment.get("PATH", os.defpath)):
        for name in NAMES:
            found = shutil.which(name, path=folders)
            if found is not None:
                return _asked(found)
    return None


def inner_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a job of its own: without what an outer launcher told this process."""
    return {name: value for name, value in environment.items() if not OUTER.fullmatch(name)}


def _asked(path: str) -> Mpiexec:
    """Ask a program whose it is."""
    try:
        asked = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=ANSWERS_WITHIN, check=False, env=inner_environment(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return Mpiexec(path, "other", "")
    told = asked.stdout.decode(errors="replace")
    number = re.search(r"\d+\.\d+(\.\d+)?", told)
    version = number[0] if number else ""
    if "HYDRA" in told or "Intel(R) MPI" in told:
        return Mpiexec(path, "hydra", version)
    if "Open MPI" in told or "OpenRTE" in told or "prte" in told.lower():
        return Mpiexec(path, "openmpi", version)
    return Mpiexec(path, "other", version)
