"""`start.py N PROGRAM WORD…`: run a program as N workers, as `netspec train --workers N` does."""

import sys

from netspec.distributed.launcher.launch import launch
from netspec.distributed.launcher.mpi_discovery import find_mpiexec
from netspec.errors import RunError

if __name__ == "__main__":
    mpiexec = find_mpiexec()
    assert mpiexec is not None
    try:
        status = launch(mpiexec, int(sys.argv[1]), [sys.executable, *sys.argv[2:]])
    except RunError as error:
        print(error.render(), file=sys.stderr)
        status = error.exit_status
    sys.exit(status)
