"""The examples in the help of each command: their options exist, and one of each command runs as it is shown."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from netspec.cli import app
from tests.cli.test_main import ALL

RUN = {
    "train": 0, "test": 0, "export": 0, "import": 0, "convert": 0, "check": 0, "plan": 0, "draw": 0, "gradcheck": 0,
    "profile": 1, "scale": 2, "runs": 0, "report": 2, "plot": 0, "diff": 0, "zoo list": 0, "zoo show": 0, "zoo copy": 0,
    "data list": 0, "devices": 0, "predict": 3, "search": 0, "init": 1, "explain": 4, "replay": 0,
}  # fmt: skip
"""Index of the example that runs, by command: a fast one."""
RUN_SLOWLY = {"data show": 0, "schema": 1, "time": 0}
RUN_ELSEWHERE = {
    "generate": "tests/docs/test_page_commands.py: language_model.md",
    "serve": "tests/docs/test_page_commands.py: serving.md",
    "board": "it waits for requests: tests/tools/report/test_board.py",
    "verify-parallel": "it needs MPI: tests/distributed/test_verify.py",
    "verify-resume": "tests/docs/test_page_commands.py: training.md",
    "data get": "it downloads: tests/data/test_fetch.py",
    "data unpack": "it downloads: tests/docs/test_page_commands.py: images.md",
}
"""Commands whose examples need files that would be large, or a network, and the tests that run them."""


def described(words: Sequence[str]) -> Any:
    """Return the command of these words, with its help, arguments and options."""
    command = get_command(app.app_of(words[0]))
    return command if len(words) == 1 else command.commands[words[1]]  # type: ignore[attr-defined]


def help_examples(words: Sequence[str]) -> list[list[str]]:
    """Return the arguments of each example in the help of a command, without redirections."""
    arguments = []
    for line in (described(words).epilog or "").splitlines()[2:]:
        parts = shlex.split(re.split(r" >>? ", line.rpartition("| ")[2])[0])
        assert parts[: len(words) + 1] == ["netspec", *words], line
        arguments.append(parts[len(words) + 1 :])
    return arguments


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_options_of_every_example_exist(words):
    for arguments in help_examples(words):
        described(words).make_context(" ".join(words), arguments)


def test_an_example_of_every_command_runs_somewhere():
    named = {" ".join(words) for words in ALL} - {"zoo", "data"}  # groups
    assert {*RUN, *RUN_SLOWLY, *RUN_ELSEWHERE} == named
    root = Path(__file__).parents[2]
    for where in RUN_ELSEWHERE.values():
        (path,) = re.findall(r"tests/\S+\.py", where)
        assert (root / path).is_file(), path


@pytest.fixture
def shown(trained: Path, netspec: Any) -> Path:
    """The current folder with the files that examples name."""
    shutil.copytree("run", "runs/lenet_mnist")
    shutil.copy("net.yaml", "new_net.yaml")
    shutil.copy("run/weights.h5", "weights.h5")
    assert netspec("export", "run", "--output", "model.onnx").status == 0
    np.savez("images.npz", features=np.load("blobs.npz")["features"])
    with Path("train.yaml").open("a") as file:
        file.write("search: {trials: 1, fields: {solver.learning_rate: {low: 0.1, high: 1.0}}}\n")
    rows = (f"{area},{area % 3},{3 * area + area % 3}.5" for area in range(60))
    Path("table.csv").write_text("\n".join(["area,rooms,price", *rows]) + "\n")
    assert netspec("init", "table.csv", "--target", "price", "--output", "adult").status == 0
    assert netspec("train", "adult/train.yaml", "--run-dir", "runs/adult", "train.max_epochs=1").status == 0
    assert netspec("train", "train.yaml", "--run-dir", "runs/lenet", "solver.learning_rate=1e30").status == 1
    (capsule,) = Path("runs/lenet").glob("capsule-*.h5")
    capsule.rename("runs/lenet/capsule-00000012.h5")
    return trained


def run_examples(examples: dict[str, int], netspec: Any) -> None:
    """Run an example of each command in the current folder, one after another."""
    for command, index in examples.items():
        words = command.split()
        result = netspec(*words, *help_examples(words)[index])
        assert result.status == 0, f"{command}: {result.err}"


def test_examples_run(shown, netspec):
    run_examples(RUN, netspec)


@pytest.mark.slow
def test_slow_examples_run(shown, netspec):
    run_examples(RUN_SLOWLY, netspec)
