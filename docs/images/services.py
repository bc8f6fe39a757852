"""Make the pictures of the page of `netspec serve` for the guide: run the commands of its pages, and fill in the form.

    python -m docs.images.services [NAME...]    # from the repository, with netspec[serve] and Chromium (`make browser`)

Writes PNG files next to this file, in about five minutes; only some of them if they are named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.images.screenshots import HERE, screenshot
from tests.chromium import Page, chromium
from tests.docs.page_commands import run_pages

WIDTH = 720


@dataclass(frozen=True)
class Picture:
    """A picture of a service with an answer."""

    page: str
    """The page of the guide whose commands make the run."""
    run: str
    """The run directory, relative to the folder of the page's example."""
    file: str = ""
    """File to choose, relative to the same folder; otherwise the form is filled in."""
    fields: Mapping[str, str] | None = None
    """Values by the selectors of fields."""


PICTURES = {
    "serving_image": Picture("images.md", "images/runs/photos", file="images/new_images/0000.png"),
    "serving_row": Picture(
        "tables.md", "tables/runs/customers",
        fields={"#field-age": "23", "#field-town": "Lund", "#field-plan": "basic"},
    ),
    "serving_text": Picture(
        "text.md", "reviews/runs/reviews", fields={"#text": "A warm and clever film."}
    ),
    "serving_prompt": Picture(
        "language_model.md", "language/runs/language",
        fields={"#text": "ROMEO:", "#field-tokens": "200", "#field-temperature": "0.8"},
    ),
}  # fmt: skip
"""Pictures by name."""


def main() -> None:
    """Write all pictures."""
    with chromium() as page:
        for name in sys.argv[1:] or PICTURES:
            picture = PICTURES[name]
            with TemporaryDirectory() as folder:
                run_pages([picture.page], Path(folder), {})
                with service(Path(folder) / picture.run) as address:
                    page.set_window(WIDTH, 100)
                    page.open(address)
                    page.wait_for("document.readyState === 'complete' && document.title !== 'netspec'")
                    answer(page, picture, Path(folder))
                    page.set_window(WIDTH, page.evaluate("document.documentElement.scrollHeight"))
                    screenshot(page, HERE / f"{name}.png")


def answer(page: Page, picture: Picture, folder: Path) -> None:
    """Send a file or the form, and wait for the answer."""
    if picture.file:
        page.choose_file("#file", folder / picture.file)
    for selector, text in (picture.fields or {}).items():
        page.evaluate(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")
    if picture.fields:
        page.evaluate("document.querySelector('#submit').click()")
    page.wait_for("document.querySelectorAll('#answer tr').length > 0")


@contextmanager
def service(run: Path) -> Iterator[str]:
    """Serve a run on a free port, and yield the address."""
    command = [sys.executable, "-m", "netspec", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(line for line in process.stderr if line.startswith("serving ")).split()[-1]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
