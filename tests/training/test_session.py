"""A training with one worker does not import code for several workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from netspec.distributed.session import WorkerSession
from netspec.schema.load import load_train
from netspec.training.session import LOCAL, Session, open_session

Make = Callable[..., dict[str, Any]]

BY_API = "import netspec; netspec.train('train.yaml', run_dir='run')"
BY_COMMAND = "from netspec.cli import main; main(['train', 'train.yaml', '--run-dir', 'run'])"
SHOW = """
import sys
packages = ('netspec.distributed', 'mpi4py', 'cupy', 'nvidia')
print('imported', sorted(name for name in sys.modules if name.startswith(packages)))
"""


@pytest.mark.parametrize("program", [BY_API, BY_COMMAND], ids=["api", "command"])
@pytest.mark.slow
def test_training_with_one_worker_imports_nothing_from_distributed(spec: Make, tmp_path: Path, program: str) -> None:
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(spec(max_steps=4), sort_keys=False))
    command = [sys.executable, "-c", f"{program}\n{SHOW}"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "imported []"
    assert (tmp_path / "run" / "weights.h5").is_file()


def test_the_spec_selects_the_session(spec: Make) -> None:
    with open_session(load_train(spec())) as session:
        assert session is LOCAL
    with open_session(load_train(spec() | {"parallel": {"strategy": "all_reduce"}})) as session:
        assert type(session).__name__ == "WorkerSession"
        assert (session.rank, session.size, session.is_root, session.alone) == (0, 1, True, True)


def test_a_session_of_several_workers_inherits_no_answer_of_a_single_one() -> None:
    answers = {name for name, value in vars(Session).items() if callable(value) or isinstance(value, property)}
    public = {name for name in answers if not name.startswith("_")}
    assert len(public) > 20
    assert public <= vars(WorkerSession).keys()
