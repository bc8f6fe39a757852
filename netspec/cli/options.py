"""Options and arguments that several commands share, and the telling apart of files and overrides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from netspec.errors import InputError, did_you_mean, kind_of_path, listing

Spec: TypeAlias = Annotated[
    str, typer.Argument(metavar="SPEC", help="A net file, or a training file.", show_default=False)
]
Training: TypeAlias = Annotated[str, typer.Argument(metavar="SPEC", help="A training file.", show_default=False)]
SpecOrRun: TypeAlias = Annotated[
    str, typer.Argument(metavar="SPEC", help="A net file, a training file, or a run's folder.", show_default=False)
]
TrainingOrRun: TypeAlias = Annotated[
    str, typer.Argument(metavar="SPEC", help="A training file, or a run's folder.", show_default=False)
]
Weights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="FILE",
        help="A weights file, or a checkpoint. Default: the best weights in a run's folder, else the last.",
        show_default=False,
    ),
]
Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]... [~KEY]...",
        help="Changes to the spec: `solver.learning_rate=0.1` sets a value, `~train.max_epochs` removes a key.",
        show_default=False,
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Where to compute, as `netspec devices` lists them. Default: a GPU that can be used, else the processor.",
        show_default=False,
    ),
]


def _use_threads(count: int | None) -> int | None:
    """Say it where the libraries look when they are loaded, which is later."""
    if count is not None:
        if count < 1:
            raise InputError("--threads must be 1 or more", got=str(count))
        os.environ["OMP_NUM_THREADS"] = str(count)
    return count


Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        callback=_use_threads,
        help="Threads to compute with. Default: OMP_NUM_THREADS, or as many as there are cores.",
        show_default=False,
    ),
]


def _level(given: str | None) -> str | None:
    levels = ("off", "quick", "full")  # those of the schema, which takes long to load
    if given is not None and given not in levels:
        expected, hint = f"one of {listing(levels)}", did_you_mean(given, levels)
        raise InputError("--autotune: there is no such level", expected=expected, got=given, hint=hint)
    return given


Autotune: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--autotune",
        metavar="LEVEL",
        callback=_level,
        help="Race the kernels that can do the same: off, quick or full. Default: what a training file says.",
        show_default=False,
    ),
]

WorkersPerHost: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers-per-host",
        metavar="N",
        help="How many workers share a host, and its connection. Default: 1, but all where they share memory.",
        show_default=False,
    ),
]
"""1 where it is not said, in every command: what is sent then leaves a host."""

BatchOrOpen: TypeAlias = Annotated[
    str,
    typer.Option("--batch-size", metavar="N|symbolic", help="The batch size of the model; `symbolic` leaves it open."),
]
Opset: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--opset", metavar="N", help="ONNX only: the operator set. Default: the newest that onnxruntime runs here.",
        show_default=False,
    ),
]  # fmt: skip

TRAINING = "training"
Form: TypeAlias = Annotated[
    str,
    typer.Option(
        "--form", metavar="inference|training",
        help="The net as it is used, or as it is in training, losses included: ONNX only.",
    ),
]  # fmt: skip


def form_of(given: str) -> str | None:
    """The form that `--form` asks for: None for the one that is used. Raises `InputError`."""
    if given not in ("inference", TRAINING):
        raise InputError("--form is none", expected="inference or training", got=given)
    return TRAINING if given == TRAINING else None


def files_and_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that name files, and those that are changes: `a.b=1`, `~a.b`.

    What exists as a file is one, so that a folder may be called `lr=0.1`.
    """
    changes = [word for word in words if ("=" in word or word.startswith("~")) and not Path(word).is_file()]
    return [word for word in words if word not in changes], changes


SUFFIXES = (
    ".onnx; .keras and .weights.h5 (Keras); .prototxt, .caffemodel and .caffemodel.h5 (Caffe); .safetensors; "
    ".npz (NumPy); .h5 (netspec's own)"
)
"""The formats that are written, for the help of commands: known without loading them."""


FORMATS = "onnx, keras, keras_weights, caffe, caffemodel, caffemodel.h5, npz, safetensors, netspec"
"""Their names, likewise."""


def writable(path: Path, option: str) -> Path:
    """`path`, if a file can be written there. Raises `InputError` before any work is done for nothing."""
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{option}: {path} is a folder", expected="the path of a file", hint=f"such as {path / 'out'}")
    if not folder.is_dir():
        near = [one.name for one in folder.parent.iterdir() if one.is_dir()] if folder.parent.is_dir() else []
        raise InputError(f"{option}: there is no folder {folder}", hint=did_you_mean(folder.name, near))
    there = kind_of_path(path)
    if there is not None:
        raise InputError(f"{option}: {path} is {there}", expected="the path of a file")
    return path


def check_batch(size: int | None, option: str = "--batch-size") -> None:
    """Raise `InputError` for a batch without samples."""
    if size is not None and size < 1:
        raise InputError(f"{option} must be 1 or more", got=str(size))


def batch_or_open(given: str) -> int | None:
    """The batch size of an exported model: None for `symbolic`. Raises `InputError` for what is neither."""
    if given == "symbolic":
        return None
    if not (given.isascii() and given.isdigit()):
        raise InputError(
            "--batch-size is neither a number nor `symbolic`", expected="1, 2, … or `symbolic`", got=repr(given)
        )
    check_batch(int(given))
    return int(given)
