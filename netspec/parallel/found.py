"""What is there to start workers with: mpi4py, the library that it finds, `mpiexec`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from netspec.parallel.mpiexec import ANSWERS_WITHIN, find_mpiexec, inner_environment

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
            [sys.executable, "-c", _ASK], env=inner_environment(os.environ), capture_output=True, text=True,
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
        missing["mpiexec"] = f"not beside {sys.executable}, not in PATH"
    else:
        found["mpiexec"] = {"path": mpiexec.path, "kind": mpiexec.kind, "version": mpiexec.version}
    if found["library"] and mpiexec is not None and mpiexec.kind != "other":
        same = found["library"].startswith("Open MPI") == (mpiexec.kind == "openmpi")
        if not same:
            missing["mpiexec"] = f"{mpiexec.path} is of another MPI than the library, {found['library']}"
    return {**found, "missing": missing}


def library_name(said: str) -> str:
    """Name and version, of the lines that a library says of itself: `MPICH 5.0.2`, `Open MPI v5.0.11`."""
    first = said.partition("\n")[0].partition(",")[0].strip("\0 ").replace("Version:", " ")
    return " ".join(first.split())
