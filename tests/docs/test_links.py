"""Links of the documentation lead to files and headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.docs.test_prose import DOCS, ROOT

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", _CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def _broken(page: Path) -> Iterator[str]:
    for address in re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = address.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not address.startswith("http") and not (
            target.exists() and (not anchor or target.suffix != ".md" or anchor in _anchors(target))
        ):
            yield f"{page.relative_to(ROOT)}: {address}"


def test_links_lead_to_files_and_headings() -> None:
    assert not [link for page in DOCS for link in _broken(page)]
