"""`Mpiexec`: find the `mpiexec` of this machine, and build its command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netspec.backends.launcher_env import clean_environment
from netspec.errors import InputError, install_command

NAMES = ("mpiexec", "mpirun", "mpiexec.hydra")
ANSWER_TIMEOUT = 120
"""Seconds that a program may take to print its version."""


@dataclass(frozen=True)
class Mpiexec:
    """An `mpiexec` and its kind: `hydra` (MPICH, Intel), `openmpi`, or `other`, which supports only `-n`."""

    path: str
    kind: str
    version: str

    def command(self, workers: int, program: list[str], *, root: bool) -> list[str]:
        """Return the command that starts a program `workers` times on this machine, which may have fewer cores.

        It ignores a batch system's hosts and launcher, and binds no worker to a core: OMP_NUM_THREADS sets the number
        of cores of each worker.
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


def find_mpiexec() -> Mpiexec | None:
    """Return the `mpiexec` next to the running Python, whose MPI library mpi4py prefers, or else the one in PATH."""
    python_folder = str(Path(sys.executable).parent)
    for folders in (python_folder, os.environ.get("PATH", os.defpath)):
        for name in NAMES:
            path = shutil.which(name, path=folders)
            if path is not None:
                return _identify(path)
    return None


def _identify(path: str) -> Mpiexec:
    """Run a program with `--version`, and return its kind and version."""
    try:
        result = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=ANSWER_TIMEOUT, check=False, env=clean_environment(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return Mpiexec(path, "other", "")
    output = result.stdout.decode(errors="replace")
    number = re.search(r"\d+\.\d+(\.\d+)?", output)
    version = number[0] if number else ""
    if "HYDRA" in output or "Intel(R) MPI" in output:
        return Mpiexec(path, "hydra", version)
    if "Open MPI" in output or "OpenRTE" in output or "prte" in output.lower():
        return Mpiexec(path, "openmpi", version)
    return Mpiexec(path, "other", version)


_VERSION_PROGRAM = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(json.dumps([mpi4py.__version__, MPI.Get_library_version()]))
"""
"""Run in a separate process: loading the library starts threads, and a broken library may end its process."""


def describe_mpi() -> dict[str, Any]:
    """Return versions of `mpi4py` and `library`, `mpiexec` (path, kind, version), and why one is `unavailable`."""
    mpiexec, unavailable = find_mpiexec(), {}
    versions: dict[str, Any] = {"mpi4py": None, "library": None, "mpiexec": None}
    try:
        result = subprocess.run(
            [sys.executable, "-c", _VERSION_PROGRAM], env=clean_environment(os.environ), capture_output=True, text=True,
            timeout=ANSWER_TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        unavailable["mpi4py"] = f"did not answer within {ANSWER_TIMEOUT} s"
    else:
        if result.returncode == 0:
            versions["mpi4py"], library = json.loads(result.stdout.splitlines()[-1])
            versions["library"] = library_name(library)
        else:
            lines = result.stderr.strip().splitlines()
            unavailable["mpi4py"] = lines[-1] if lines else f"ended with status {result.returncode}"
    if mpiexec is None:
        unavailable["mpiexec"] = f"not next to {sys.executable}, not in PATH"
    else:
        versions["mpiexec"] = {"path": mpiexec.path, "kind": mpiexec.kind, "version": mpiexec.version}
    if versions["library"] and mpiexec is not None and mpiexec.kind != "other":
        same = versions["library"].startswith("Open MPI") == (mpiexec.kind == "openmpi")
        if not same:
            unavailable["mpiexec"] = (
                f"{mpiexec.path} belongs to a different MPI than the library, {versions['library']}"
            )
    return {**versions, "unavailable": unavailable}


def how_to_install() -> str:
    """Return the commands that install mpi4py: with an MPI library, or for the MPI of a cluster."""
    return f"`{install_command('mpi')}`, or on a cluster with an MPI of its own `pip install mpi4py`"


def require_mpiexec() -> Mpiexec:
    """Return the `mpiexec` of this machine. Raises `InputError` if it or mpi4py is missing or can't be used."""
    facts = describe_mpi()
    unavailable: dict[str, str] = facts["unavailable"]
    if unavailable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in unavailable.items())
        raise InputError(
            f"--workers needs {' and '.join(unavailable)}, not usable here", got=reasons, hint=how_to_install()
        )
    return Mpiexec(**facts["mpiexec"])


def library_name(description: str) -> str:
    """Return name and version from a library's own description: `MPICH 5.0.2`, `Open MPI v5.0.11`."""
    first = description.partition("\n")[0].partition(",")[0].strip("\0 ").replace("Version:", " ")
    return " ".join(first.split())
