"""Make the pictures of `netspec draw`, `report` and `board` for the guide, with the real commands.

    python -m docs.images.screenshots     # from the repository, with the extra `serve` and Chromium (`make browser`)

Trains two small runs in a temporary folder, which takes about a minute, and writes PNG and SVG files next to this file.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from tests.chromium import Page, chromium

HERE = Path(__file__).parent
WIDTH = 1000
SETTINGS = (
    "~train.max_epochs", "train.max_steps=150", "train.log_every=5", "train.test_every=15", "data.test.limit=1000",
    "train.log_gradient_norm=true", "callbacks=[{type: Histograms}]",
)  # fmt: skip
RUNS = {"fast": ("solver.learning_rate.initial=0.05",), "slow": ("solver.learning_rate.initial=0.005",)}
SECTIONS = {"report_curves.png": ("Curves", 760), "report_samples.png": ("Worst samples", 640)}
"""Parts of the report: the file, the section that it begins with, and its height in pixels."""
READY = "document.readyState === 'complete' && document.querySelectorAll('#curves canvas').length >= 3"


def main() -> None:
    """Write all pictures."""
    with TemporaryDirectory() as name, chromium() as page:
        folder = Path(name)
        netspec(folder, "zoo", "copy", "lenet_mnist", "lenet")
        netspec(folder, "draw", "lenet/net.yaml", "--shapes", "--parameters", "--output", str(HERE / "net.svg"))
        for run, settings in RUNS.items():
            netspec(folder, "train", "lenet/train.yaml", *SETTINGS, *settings, "--run-dir", f"runs/{run}")
        netspec(folder, "report", "runs/fast")
        page.set_window(WIDTH, 800)
        page.open((folder / "runs/fast/report.html").as_uri())
        page.wait_for(READY)
        for file, (section, height) in SECTIONS.items():
            page.set_window(WIDTH, height)
            page.evaluate(f"document.querySelector('[aria-label=\"{section}\"]').scrollIntoView()")
            screenshot(page, HERE / file)
        with board(folder) as address:
            page.set_window(WIDTH, 900, dark=True)
            page.open(address)
            page.wait_for(READY)
            screenshot(page, HERE / "board.png")


def netspec(folder: Path, *words: str) -> None:
    """Run a command in a folder."""
    subprocess.run([sys.executable, "-m", "netspec", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def board(folder: Path) -> Iterator[str]:
    """Run a board on a free port, and yield its address."""
    command = [sys.executable, "-m", "netspec", "board", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
        process.terminate()


def screenshot(page: Page, path: Path) -> None:
    """Write the window, after the next frame is drawn, with as many colors as a small file has."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    page.screenshot(path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()
