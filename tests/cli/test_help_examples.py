"""The examples in the help of each command: their options exist, and one example of each command runs as shown."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from typer.main import get_command

from netspec.cli import app
from tests.cli.listening import listening
from tests.cli.test_known_sets import RECORDS, replace_cifar10
from tests.cli.test_main import ALL
from tests.data.test_fetch import Server, packed, server
from tests.distributed.test_verify import needs_mpi

__all__ = ["server"]  # re-exports the fixture

RUN = {
    "train": 0, "test": 0, "export": 0, "import": 0, "convert": 0, "check": 0, "plan": 0, "draw": 0, "gradcheck": 0,
    "profile": 1, "scale": 2, "runs": 0, "report": 2, "plot": 0, "diff": 0, "zoo list": 0, "zoo show": 0, "zoo copy": 0,
    "data list": 0, "devices": 0, "predict": 3, "search": 0, "init": 1, "explain": 4, "replay": 0,
    "generate": 0,
}  # fmt: skip
"""By command, the index of the example that is run, which is a fast one."""
RUN_SLOWLY = {"data show": 0, "schema": 1, "time": 0, "verify-resume": 0}
DOWNLOADS = {"data get": 0, "data unpack": 0}
WITH_MPI = {"verify-parallel": 1}
SERVERS = {"serve": 0, "board": 0}
"""Commands that answer requests until a signal ends them."""
SHORTER = {"verify-resume": ["--kills", "1"]}
"""Options added to examples that start many processes."""


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
    named = {" ".join(words) for words in ALL} - {"zoo", "data"}  # groups of commands
    assert {*RUN, *RUN_SLOWLY, *DOWNLOADS, *WITH_MPI, *SERVERS} == named


@pytest.fixture
def shown(trained: Path, netspec: Any) -> Path:
    """The current folder with the files that examples name."""
    shutil.copytree("run", "runs/lenet_mnist")
    shutil.copy("net.yaml", "new_net.yaml")
    shutil.copy("run/weights.h5", "weights.h5")
    netspec.ok("export", "run", "--output", "model.onnx")
    np.savez("images.npz", features=np.load("blobs.npz")["features"])
    with Path("train.yaml").open("a") as file:
        file.write("search: {trials: 1, fields: {solver.learning_rate: {low: 0.1, high: 1.0}}}\n")
    rows = (f"{area},{area % 3},{3 * area + area % 3}.5" for area in range(60))
    Path("table.csv").write_text("\n".join(["area,rooms,price", *rows]) + "\n")
    netspec.ok("init", "table.csv", "--target", "price", "--output", "adult")
    netspec.ok("train", "adult/train.yaml", "--run-dir", "runs/adult", "train.max_epochs=1")
    assert netspec("train", "train.yaml", "--run-dir", "runs/lenet", "solver.learning_rate=1e30").status == 1
    (capsule,) = Path("runs/lenet").glob("capsule-*.h5")
    capsule.rename("runs/lenet/capsule-00000012.h5")
    return trained


def run_examples(examples: dict[str, int], netspec: Any) -> None:
    """Run an example of each command in the current folder, one after another."""
    for command, index in examples.items():
        words = command.split()
        result = netspec(*words, *help_examples(words)[index], *SHORTER.get(command, []))
        assert result.status == 0, f"{command}: {result.err}"


def test_examples_run(shown, netspec):
    run_examples(RUN, netspec)


@pytest.mark.slow
def test_slow_examples_run(shown, netspec):
    run_examples(RUN_SLOWLY, netspec)


def test_examples_of_downloads_run(work, netspec, server: Server, monkeypatch):
    server.files["/cifar-10-binary.tar.gz"] = archive = packed(RECORDS)
    replace_cifar10(monkeypatch, work / "sets", archive, (f"{server.address}/",))
    run_examples(DOWNLOADS, netspec)
    assert len(server.asked) == 1, "what is unpacked was downloaded"
    assert len(list(Path("cifar10_png").rglob("*.png"))) == len(RECORDS)


@needs_mpi
@pytest.mark.slow
def test_examples_of_several_workers_run(work, netspec, monkeypatch):
    monkeypatch.setenv("NETSPEC_KERNELS", "reference")  # each worker would compile kernels
    run_examples(WITH_MPI, netspec)


@pytest.mark.slow
@pytest.mark.parametrize("command", SERVERS)
def test_examples_of_servers_answer_until_a_signal(shown, command):
    with listening(command, *help_examples([command])[SERVERS[command]]) as (process, url):
        with urlopen(url, timeout=20) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
