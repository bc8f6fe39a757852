"""A new folder that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from netspec.errors import InputError, NetspecError, Problem, RunError
from netspec.exchange.files import staging, sync_folder


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `target` once the block is left without an error.

    Raises `InputError` where something is at `target` already (an empty folder is in nobody's way), `RunError` where it
    can't be written. What goes wrong in the block is told of `target`, whose files the user knows.
    """
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        what = "a folder that is not empty" if target.is_dir() else "a file"
        raise InputError(f"{target} is {what}", expected="a folder that is not there yet")
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with staging(target) as staged:
            yield from _filled(staged, target)
    except OSError as error:
        raise RunError(
            f"cannot write {target}", got=error.strerror or str(error), hint="nothing of it is left"
        ) from error


def _filled(staged: Path, target: Path) -> Iterator[Path]:
    """The folder to be filled, which is called `target` then."""
    try:
        yield staged
    except NetspecError as error:
        kind = InputError if isinstance(error, InputError) else RunError  # others take more than problems
        raise kind(_renamed(problem, str(staged), str(target)) for problem in error.problems) from error
    staged.chmod(0o755)  # until now it was for its owner alone
    if target.is_dir():
        target.rmdir()
    staged.rename(target)
    sync_folder(target.absolute().parent)


def _renamed(problem: Problem, staged: str, target: str) -> Problem:
    """The problem with the name that its files were to have."""
    texts = {name: getattr(problem, name) for name in ("message", "expected", "got", "hint")}
    place = problem.location and replace(problem.location, file=problem.location.file.replace(staged, target))
    told = {name: text and text.replace(staged, target) for name, text in texts.items()}
    return replace(problem, **told, location=place)
