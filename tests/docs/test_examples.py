"""All examples in the documentation work as shown."""

from __future__ import annotations

import re
import runpy
import wave
from collections.abc import Callable
from functools import cache
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from netspec.cli import main
from netspec.cli.app import app_of
from netspec.cli.options import files_and_overrides
from netspec.schema.bundled import model_path, zoo_root
from netspec.tools.checking.check import check
from netspec.tools.specs import load_spec
from tests.docs.examples import PAGES, ROOT, TRAIN_KEYS, Example, commands, examples, here_documents

DATA_PAGES = [
    ROOT / "docs" / "guide" / name
    for name in ("images.md", "tables.md", "text.md", "language_model.md", "time_series.md", "data.md")
]
EXAMPLES = [example for page in PAGES for example in examples(page)]
WHOLE = [example for example in EXAMPLES if example.complete]
PARTS = [example for example in EXAMPLES if not example.complete]
COMMAND_LINES = [(page, words) for page in PAGES for words in commands(page)]


def by_page(item: Any) -> str:
    return str(item.relative_to(ROOT)) if isinstance(item, Path) else " ".join(item)


def write_files(page: Path, folder: Path) -> None:
    """Write the complete files that a page shows."""
    for example in examples(page):
        if example.complete:
            file = folder / example.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(example.text, encoding="utf-8")


@pytest.mark.parametrize("example", WHOLE, ids=lambda example: example.id)
def test_every_complete_file_is_valid(example: Example, tmp_path: Path):
    write_files(example.page, tmp_path)
    assert check(tmp_path / example.file, data=False).parameters > 0


@pytest.mark.parametrize("example", PARTS, ids=lambda example: example.id)
def test_every_part_is_right_in_lenets_training(example: Example, tmp_path: Path):
    """Replaces the same keys in the zoo's training file."""
    assert set(example.tree) <= TRAIN_KEYS
    zoo = zoo_root() / "lenet_mnist"
    lines = ["netspec: 1", f"net: {zoo / 'net.yaml'}"]
    split = "{source: mnist, split: %s, batch_size: 64}"
    data = f"data: {{train: {split % 'train'}, test: {split % 'test'}}}"
    lines += [data] if "data" not in example.tree else []
    lines += ["solver: SGD"] if "solver" not in example.tree else []
    lines += ["train: {max_epochs: 1}"] if "train" not in example.tree else []
    (tmp_path / "train.yaml").write_text("\n".join([*lines, example.text]), encoding="utf-8")
    assert check(tmp_path / "train.yaml", data=False).parameters > 0


def test_the_pages_have_examples():
    assert {example.page.name for example in WHOLE} >= {"README.md", "spec.md", "data.md"}
    assert {example.page.name for example in PARTS} >= {"data.md", "solvers.md"}
    assert {page.name for page, _ in COMMAND_LINES} >= {"README.md", "spec.md", "deployment.md"}


@pytest.mark.parametrize(("page", "words"), COMMAND_LINES, ids=by_page)
def test_every_command_and_option_is_there(page: Path, words: list[str]):
    command: Any = get_command(app_of(words[0]))
    arguments = words[1:]
    if hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= options | {"--help"}


@pytest.mark.parametrize(("page", "words"), COMMAND_LINES, ids=by_page)
def test_every_override_fits_the_file_that_it_is_shown_with(
    page: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if words[0] not in ("train", "check", "plan"):
        return
    monkeypatch.chdir(tmp_path)
    write_files(page, tmp_path)
    (tmp_path / "model_zoo").symlink_to(zoo_root())
    copies = {words[3]: words[2] for words in commands(page) if words[:2] == ["zoo", "copy"] and len(words) > 3}
    for folder, model in {"my_net": "lenet_mnist", **copies}.items():
        (tmp_path / folder).symlink_to(zoo_root() / model)
    command: Any = get_command(app_of(words[0]))
    with_value = {
        option for parameter in command.params for option in parameter.opts if not getattr(parameter, "is_flag", True)
    }
    arguments = [word for before, word in pairwise(words) if not word.startswith("--") and before not in with_value]
    files, overrides = files_and_overrides(arguments)
    initialized = [f"{words[1]}/train.yaml" for words in commands(page) if words[0] == "init"]
    for name in files:
        path = model_path(name)
        file = f"{path}/train.yaml" if Path(path).is_dir() else path
        # A command has written the file, so it has all fields of a training.
        other = file.startswith("runs/") or file in initialized
        assert other or Path(file).is_file() or not overrides, f"{file} is not shown on the page"
        if overrides:
            check_overrides(Path("my_net/train.yaml" if other else file).resolve(), tuple(overrides))


FOLDERS = re.compile(r"vars\.folder=|data\.\w+\.(path|batch_size)=")
"""Overrides that change neither the net nor what it is trained for."""


@cache
def check_overrides(file: Path, overrides: tuple[str, ...]) -> None:
    """Check a file with these overrides. For zoo models, check only what the overrides can change."""
    if not file.is_relative_to(zoo_root().resolve()):
        check(file, overrides=[*overrides], data=False)
    elif all(map(FOLDERS.match, overrides)):
        load_spec(file, overrides)
    else:
        small = ["data.train.batch_size=2"] if file.name == "train.yaml" else []  # large steps take long to plan
        check(file, overrides=[*overrides, *small], data=False)


def test_the_drawing_in_the_readme_shows_the_real_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compares the errors; record it again with docs/images/record.py if they have changed."""
    folder = ROOT / "docs" / "images"
    drawing = unescape(re.sub(r"<[^>]*>", "", (folder / "terminal.svg").read_text(encoding="utf-8")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text(runpy.run_path(str(folder / "record.py"))["NET"], encoding="utf-8")
    assert main(["check", "broken.yaml"]) == 2
    assert "".join(capsys.readouterr().err.split()) in "".join(drawing.split())


def arrays(folder: Path) -> None:
    """Write 20 images to each of two files, with the arrays that the page describes."""
    random = np.random.default_rng(0)
    for name in ("train.npz", "test.npz"):
        images = random.integers(0, 256, (20, 28, 28)).astype(np.uint8)
        np.savez(folder / name, image=images, label=random.integers(0, 10, 20))


def write_here_documents(page: str, folder: Path) -> None:
    """Write the files that the commands on a page of the guide write."""
    for name, text in here_documents(ROOT / "docs" / "guide" / page).items():
        (folder / name).write_text(text, encoding="utf-8")


def table(folder: Path) -> None:
    """Write the rows on the page."""
    write_here_documents("tables.md", folder)


def series(folder: Path) -> None:
    """Write the table that the commands on the page write."""
    write_here_documents("time_series.md", folder)
    lines = (folder / "passengers.txt").read_text().splitlines()
    rows = [
        f"{1949 + year}-{month:02d}-01,{number}"
        for year, line in enumerate(lines)
        for month, number in enumerate(line.split(), 1)
    ]
    (folder / "passengers.csv").write_text("\n".join(["month,passengers", *rows]) + "\n")


def images(folder: Path) -> None:
    """Three images in each class folder."""
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in range(10):
            below = folder / "digits" / split / str(name)
            below.mkdir(parents=True)
            for number in range(3):
                Image.fromarray(random.integers(0, 256, (28, 28)).astype(np.uint8)).save(below / f"{number}.png")


def language(folder: Path) -> None:
    """Write a text of 65 characters, all of which occur in the training part, with windows for three batches."""
    alphabet = "".join(map(chr, range(33, 97))) + "\n"
    (folder / "tinyshakespeare.txt").write_text(alphabet * 60, encoding="utf-8")


def reviews(folder: Path) -> None:
    """Write the texts on the page."""
    write_here_documents("text.md", folder)


def commands_said(folder: Path) -> None:
    """Write two sounds to each of ten folders, with other rates and lengths than those of the net."""
    for split in ("train", "test"):
        for name in range(10):
            below = folder / split / str(name)
            below.mkdir(parents=True)
            for number in range(2):
                with wave.open(str(below / f"{number}.wav"), "wb") as file:
                    file.setparams((1, 2, (8000, 16000)[number], 0, "NONE", ""))
                    file.writeframes(np.arange(20000 * number, 20000 * number + 9000).astype("<i2").tobytes())


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("arrays", arrays),
        ("tables", table),
        ("series", series),
        ("images", images),
        ("language", language),
        ("reviews", reviews),
        ("commands", commands_said),
    ],
)
def test_the_trainings_on_your_data_run(
    kind: str, make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for page in DATA_PAGES:
        write_files(page, tmp_path)
    make(tmp_path / kind)
    monkeypatch.chdir(tmp_path / kind)
    assert main(["train", "train.yaml", "train.max_epochs=1", "--json", "--device", "reference"]) == 0
    assert list((tmp_path / kind / "runs").glob("*/weights.h5"))


@pytest.mark.parametrize(
    ("page", "kind", "name", "classes"),
    [("tables.md", "tables", "new.csv", ["yes", "no"]), ("text.md", "reviews", "new.txt", ["good", "bad"])],
)
def test_predictions_are_those_on_the_page(
    page: str,
    kind: str,
    name: str,
    classes: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "docs" / "guide" / page).read_text(encoding="utf-8")
    command, _, output = text.partition(f" --input {name}\n")
    run = command.rpartition(" ")[2]
    write_files(ROOT / "docs" / "guide" / page, tmp_path)
    folder = tmp_path / kind
    write_here_documents(page, folder)
    monkeypatch.chdir(folder)
    assert main(["train", "train.yaml", "--json", "--device", "reference"]) == 0
    capsys.readouterr()
    assert main(["predict", run, "--input", name, "--device", "reference"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split()[1] for row in rows] == classes
    assert [row.split()[1] for row in output.splitlines()[2:4]] == classes
