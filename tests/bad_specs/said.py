"""What `netspec check --json` says of a file of the corpus: the problems, the exit status and stderr."""

from __future__ import annotations

import io
import json
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from netspec.cli import main
from tests.bad_specs.case import Case


@dataclass(frozen=True)
class Said:
    """The outcome of a check."""

    status: int
    problems: list[dict[str, Any]]
    stderr: str


def check(case: Case) -> Said:
    """Check the case's file with its changes, as the command does in the file's folder, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(case.path.parent), redirect_stdout(out), redirect_stderr(err):
        status = main(["check", case.path.name, *case.overrides, "--json"])
    return Said(status, json.loads(out.getvalue()), err.getvalue())
