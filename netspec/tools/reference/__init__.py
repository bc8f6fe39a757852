"""The reference of the spec language in Markdown, made of the classes: what `netspec schema --docs` writes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from netspec.exchange.files import write_atomically
from netspec.tools.reference.pages import MARK, pages

__all__ = ["pages", "write_pages"]


def write_pages(folder: Path) -> int:
    """Write all pages below `folder`, and remove those of before that are no more; how many there are.

    Raises `InputError` or `RunError` where a file cannot be written.
    """
    made = pages()
    for path, text in made.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, partial(_write, text))
    for found in folder.rglob("*.md"):
        if found.relative_to(folder).as_posix() not in made and found.read_text(encoding="utf-8").startswith(MARK):
            found.unlink()
    return len(made)


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
