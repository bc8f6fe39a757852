"""`Mpiexec`: the program of an MPI that starts processes, found on this machine and spoken to in its own options."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.errors import InputError

NAMES = ("mpiexec", "mpirun", "mpiexec.hydra")
ANSWERS_WITHIN = 20
"""Seconds that a program may take to print its version."""
OUTER = re.compile(r"(PMI|HYDI|OMPI_COMM|PMIX_(?!MCA_)|MPI_LOCAL)\w*|OMPI_UNIVERSE_SIZE|PRTE_LAUNCHED")
"""Environment variables of a surrounding MPI job, which a new job must not inherit."""


@dataclass(frozen=True)
class Mpiexec:
    """An `mpiexec` and its kind: `hydra` (MPICH, Intel), `openmpi`, or `other`, which supports only `-n`."""

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
    """Return the `mpiexec` next to the running Python, whose library mpi4py finds first, or the one in PATH, if any."""
    beside = str(Path(sys.executable).parent)
    for folders in (beside, environment.get("PATH", os.defpath)):
        for name in NAMES:
            found = shutil.which(name, path=folders)
            if found is not None:
                return _asked(found)
    return None


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a new MPI job, without the variables of an outer launcher."""
    return {name: value for name, value in environment.items() if not OUTER.fullmatch(name)}


def _asked(path: str) -> Mpiexec:
    """Ask a program whose it is."""
    try:
        asked = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=ANSWERS_WITHIN, check=False, env=clean_environment(os.environ),
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


INSTALL = "`pip install 'netspec[mpi]'`, or on a cluster with an MPI of its own `pip install netspec mpi4py`"
_ASK = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(json.dumps([mpi4py.__version__, MPI.Get_library_version()]))
"""
"""Run by a Python of its own: loading the library starts threads, and one that is broken may end its process."""


def describe_mpi() -> dict[str, Any]:
    """Plain data: `mpi4py` and `library` (a version each), `mpiexec` (path, kind, version); `missing`: why not."""
    mpiexec, missing = find_mpiexec(), {}
    found: dict[str, Any] = {"mpi4py": None, "library": None, "mpiexec": None}
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK], env=clean_environment(os.environ), capture_output=True, text=True,
            timeout=ANSWERS_WITHIN, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        missing["mpi4py"] = f"has not answered for {ANSWERS_WITHIN} s"
    else:
        if asked.returncode == 0:
            found["mpi4py"], library = json.loads(asked.stdout.splitlines()[-1])
            found["library"] = library_name(library)
        else:
            lines = asked.stderr.strip().splitlines()
            missing["mpi4py"] = lines[-1] if lines else f"ended with status {asked.returncode}"
    if mpiexec is None:
        missing["mpiexec"] = f"not next to {sys.executable}, not in PATH"
    else:
        found["mpiexec"] = {"path": mpiexec.path, "kind": mpiexec.kind, "version": mpiexec.version}
    if found["library"] and mpiexec is not None and mpiexec.kind != "other":
        same = found["library"].startswith("Open MPI") == (mpiexec.kind == "openmpi")
        if not same:
            missing["mpiexec"] = f"{mpiexec.path} is of another MPI than the library, {found['library']}"
    return {**found, "missing": missing}


def require_mpiexec() -> Mpiexec:
    """Return the `mpiexec` of this machine. Raises `InputError` if it or mpi4py is missing or can't be used."""
    facts = describe_mpi()
    missing: dict[str, str] = facts["missing"]
    if missing:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise InputError(f"--workers needs {' and '.join(missing)}, not usable here", got=reasons, hint=INSTALL)
    return Mpiexec(**facts["mpiexec"])


def library_name(said: str) -> str:
    """Name and version, of the lines that a library says of itself: `MPICH 5.0.2`, `Open MPI v5.0.11`."""
    first = said.partition("\n")[0].partition(",")[0].strip("\0 ").replace("Version:", " ")
    return " ".join(first.split())
