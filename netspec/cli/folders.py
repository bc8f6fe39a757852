"""A new folder that appears whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from netspec.errors import InputError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `target` once the block is left without an error.

    Raises `InputError` where something is at `target` already; an empty folder is in nobody's way.
    """
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        what = "a folder that is not empty" if target.is_dir() else "a file"
        raise InputError(f"{target} is {what}", expected="a folder that is not there yet")
    parent = target.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    staged = Path(mkdtemp(prefix=f".{target.name}-", dir=parent))
    try:
        yield staged
        staged.chmod(0o755)  # mkdtemp's folders are for their owner alone
        if target.is_dir():
            target.rmdir()
        staged.rename(target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
