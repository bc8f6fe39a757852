"""Options and arguments that several commands share, and functions that parse them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from netspec.errors import InputError, Problem, did_you_mean, kind_of_path, listing
from netspec.schema.bundled import model_path
from netspec.tools.bounds import require_at_least

Training: TypeAlias = Annotated[
    str, typer.Argument(metavar="SPEC", help="Read a training file, run or zoo model.", callback=model_path)
]
"""What a command trains: not a net file alone."""
TrainingModel: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help="Read a training file, run or zoo model.", callback=model_path)
]
NetModel: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help="Read a net or training file, run or zoo model.", callback=model_path)
]
AnyModel: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="Read a net, training or model file, run or zoo model.", callback=model_path),
]
Weights: TypeAlias = Annotated[
    str | None, typer.Option("--weights", metavar="FILE", help="Load weights [default: the run's best].")
]
CHANGES, CHANGES_HELP = "[KEY=VALUE|~KEY]...", "Set a key (solver.learning_rate=0.1) or remove it."
Overrides: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar=CHANGES, help=CHANGES_HELP)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Device: TypeAlias = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="Use one of `netspec devices` [default: auto].", show_default=False),
]


def _use_threads(count: int | None) -> int | None:
    """Set OMP_NUM_THREADS, which the libraries read when they are loaded."""
    if count is not None:
        require_at_least(1, {"--threads": count})
        os.environ["OMP_NUM_THREADS"] = str(count)
    return count


def threads_option(otherwise: str) -> Any:
    """Return the option --threads, whose default is OMP_NUM_THREADS, or `otherwise` if it is not set."""
    text = f"Use N threads [default: OMP_NUM_THREADS, else {otherwise}]."
    return typer.Option("--threads", metavar="N", callback=_use_threads, help=text)


Threads: TypeAlias = Annotated[int | None, threads_option("all")]


def _level(level: str | None) -> str | None:
    levels = ("off", "quick", "full")  # a copy of the schema's, which takes long to load
    if level is not None and level not in levels:
        expected, hint = f"one of {listing(levels)}", did_you_mean(level, levels)
        raise InputError("--autotune: there is no such level", expected=expected, got=level, hint=hint)
    return level


def autotune_option(action: str) -> Any:
    """Return the option --autotune; `action` is the beginning of its help."""
    text = f"{action}: off, quick, full [default: the file's]."
    return typer.Option("--autotune", metavar="LEVEL", callback=_level, help=text)


Autotune: TypeAlias = Annotated[str | None, autotune_option("Tune kernels")]

DYNAMIC = "dynamic"
"""Value of --batch-size for a model that accepts any number of samples."""
BatchOrDynamic: TypeAlias = Annotated[
    str, typer.Option("--batch-size", metavar=f"N|{DYNAMIC}", help="Fix the batch size.")
]
Opset: TypeAlias = Annotated[
    int | None, typer.Option("--opset", metavar="N", help="Use this ONNX opset [default: the newest].")
]

Form: TypeAlias = Annotated[str, typer.Option("--form", metavar="inference|training", help="Export this form.")]


def files_and_overrides(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words into files and overrides (`a.b=1`, `~a.b`).

    The path of an existing file is a file even if it contains `=`: `lr=0.1/net.yaml`.
    """
    changes = [word for word in words if ("=" in word or word.startswith("~")) and not Path(word).is_file()]
    return [word for word in words if word not in changes], changes


CHART_SUFFIXES = (".svg", ".png")
"""Suffixes of charts."""


def writable(path: Path, option: str, suffixes: str | Sequence[str] | None = None) -> Path:
    """Return `path` if a file with one of the suffixes can be written there; raise `InputError` before any work."""
    folder = path.parent
    if path.is_dir():
        raise InputError(f"{option}: {path} is a folder", expected="the path of a file", hint=f"such as {path / 'out'}")
    if not folder.is_dir():
        near = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()] if folder.parent.is_dir() else []
        raise InputError(f"{option}: folder {folder} does not exist", hint=did_you_mean(folder.name, near))
    kind = kind_of_path(path)
    if kind is not None:
        raise InputError(f"{option}: {path} is {kind}", expected="the path of a file")
    allowed = (suffixes,) if isinstance(suffixes, str) else tuple(suffixes or ())
    if allowed and path.suffix.lower() not in allowed:
        kinds = " or ".join(suffix[1:].upper() for suffix in allowed)
        name = f"a file name that ends in {' or '.join(allowed)}"
        raise InputError(f"{option}: the file is written as {kinds}", expected=name, got=str(path))
    return path


def batch_or_dynamic(text: str) -> int | None:
    """Parse the batch size of an exported model: None for a dynamic one. Raises `InputError` for anything else."""
    if text in (DYNAMIC, "symbolic"):  # its name in release 0.2.0
        return None
    if not (text.isascii() and text.isdigit()):
        raise InputError(
            f"--batch-size is neither a number nor `{DYNAMIC}`", expected=f"1, 2, … or `{DYNAMIC}`", got=repr(text)
        )
    require_at_least(1, {"--batch-size": int(text)})
    return int(text)


Shapes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,28,28", help="Set an input's sizes, or a named axis: height=28."),
]

Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--value", metavar="INPUT=16000", help="Replace an input by a constant: 16000 or 1,2,3."),
]


def shapes_of(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Parse shapes written as `name=1,28,28`. Raises `InputError` that lists all invalid ones."""
    shapes: dict[str, tuple[int, ...]] = {}
    problems: list[Problem] = []
    for text in texts or ():
        name, sign, sizes = text.rpartition("=")
        numbers = sizes.split(",")
        if not name or not sign or not all(number.isascii() and number.isdigit() and int(number) for number in numbers):
            problems.append(Problem(f"`{text}` is not an input's shape", expected="--shape INPUT=1,28,28"))
        else:
            shapes[name] = tuple(map(int, numbers))
    if problems:
        raise InputError(problems)
    return shapes


def values_of(texts: list[str] | None) -> dict[str, tuple[float, ...]]:
    """Parse values written as `name=16000` or `name=1,2,3`. Raises `InputError` that lists all invalid ones."""
    values: dict[str, tuple[float, ...]] = {}
    problems: list[Problem] = []
    for text in texts or ():
        name, _, numbers = text.rpartition("=")
        try:
            values[name] = tuple(
                int(number) if number.strip().lstrip("+-").isdecimal() else float(number)
                for number in numbers.split(",")
            )
        except ValueError:
            name = ""
        if not name:
            problems.append(Problem(f"`{text}` is not an input's value", expected="--value INPUT=16000"))
    if problems:
        raise InputError(problems)
    return values


def find_weights(spec: str, weights: str | None) -> tuple[str, str]:
    """The spec and the weights to use; those of a run directory are noted on stderr. Raises `InputError`."""
    from netspec.tools.model_inputs import spec_and_weights

    paths = spec_and_weights(spec, weights, lambda note: print(f"note: {note}", file=sys.stderr))
    return str(paths[0]), str(paths[1])
