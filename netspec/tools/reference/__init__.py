"""Write the reference of the spec language in Markdown, generated from the classes: `netspec schema --docs`."""

from __future__ import annotations

from pathlib import Path

from netspec.exchange.files import write_text_atomically
from netspec.tools.reference.pages import MARK, pages

__all__ = ["pages", "write_pages"]


def write_pages(folder: Path) -> int:
    """Write all pages below `folder` and remove outdated ones; return the number of pages.

    Raises `InputError` or `RunError` if a file cannot be written.
    """
    written = pages()
    for path, text in written.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(target, text)
    for page in folder.rglob("*.md"):
        if page.relative_to(folder).as_posix() not in written and page.read_text(encoding="utf-8").startswith(MARK):
            page.unlink()
    return len(written)
