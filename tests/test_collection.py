"""Test ids depend only on the tests, since all workers of pytest-xdist must collect the same ids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# gzip, zipfile, uuid and tempfile read the clock through these functions; `datetime` follows the time zone.
SHIFTED = """
import sys, time
real, real_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: real() + 34_567_891.0, lambda: real_ns() + 34_567_891_000_000_000
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def collected_elsewhere(root: Path, files: list[str], home: Path) -> set[str]:
    """Return the ids that a process with a different clock, time zone, hash seed and home folder collects."""
    options = ["--collect-only", "--numprocesses=0", "-p", "no:cacheprovider", "--color=no"]
    command = [sys.executable, "-c", SHIFTED, *options, *files]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4321",
        "TZ": "Pacific/Kiritimati",
        "HOME": str(home),
        "PWD": str(root),
    }
    for variable in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[variable]
    process = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    return set(process.stdout.splitlines())


@pytest.mark.exhaustive
def test_ids_do_not_depend_on_clock_path_process_or_hash_seed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Collect the tests of this run again, in another process."""
    root = tmp_path / "elsewhere"
    root.symlink_to(ROOT, target_is_directory=True)
    files = sorted({item.path.relative_to(ROOT).as_posix() for item in request.session.items})
    elsewhere = collected_elsewhere(root, files, tmp_path)
    missing = [item.nodeid for item in request.session.items if item.nodeid not in elsewhere]
    assert missing == []
