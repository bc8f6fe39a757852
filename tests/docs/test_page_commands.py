"""The commands of the task pages run as shown, on reduced data if the page uses much."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.page_commands import run_pages

pytestmark = pytest.mark.slow

DIGITS = """python - <<'END'
from pathlib import Path
import numpy as np
from PIL import Image
random = np.random.default_rng(0)
for split in ("train", "test"):
    for name in range(10):
        for number in range(4):
            path = Path("digits") / split / str(name) / f"{number:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (28, 28)).astype(np.uint8)).save(path)
END"""
"""Writes noise in place of MNIST's 70,000 images."""
TEXT = "python -c \"print((''.join(map(chr, range(33, 97))) + chr(10)) * 60)\" > tinyshakespeare.txt #"
"""Writes 65 characters again and again in place of Shakespeare's works."""
SHORT = "train.max_epochs=null train.max_steps=8 data.test.limit=200"
FEW_STEPS = {
    "train.max_epochs=1": SHORT,
    "train.max_steps=400 train.test_every=50": "train.max_steps=4 train.test_every=2 data.test.limit=200",
    "--resume train.max_epochs=8": "--resume train.max_steps=10",
    "my_net/train.yaml --resume": f"my_net/train.yaml {SHORT} --resume",
    "my_net/train.yaml --run-dir": f"my_net/train.yaml {SHORT} --run-dir",
    "step-00000938": "step-00000008",
    "my_net/train.yaml train.memory_budget": f"my_net/train.yaml {SHORT} train.memory_budget",
    "--steps 200 --kills 5 train.test_every=50": "--steps 8 --kills 1 data.test.limit=200",
    "netspec import trained.keras": ": ",  # the reader already has this file
    "netspec train imported/train.yaml": ": ",
}
"""Few steps and few test images for the commands of the page about training."""
TASKS: dict[str, tuple[list[str], Mapping[str, str]]] = {
    "images": (["images.md", "serving.md"], {"netspec data unpack mnist digits": DIGITS + "\n: "}),
    "fine-tuning": (["images.md", "fine_tuning.md"], {"netspec data unpack mnist digits": DIGITS + "\n: "}),
    "table": (["tables.md"], {}),
    "text": (["text.md"], {}),
    "language model": (
        ["language_model.md"],
        {"netspec data get tinyshakespeare": TEXT, "--prompt 'ROMEO:'": "--prompt 'ABC'", '"ROMEO:"': '"ABC"'},
    ),
    "time series": (["time_series.md"], {"netspec train train.yaml": "netspec train train.yaml train.max_epochs=5"}),
    "segmentation": (["segmentation.md"], {"range(240)": "range(24)", "train.max_epochs=8": "train.max_epochs=1"}),
    "detection": (
        ["detection.md"],
        {
            "detector/shapes\n": "detector/shapes --train 40 --test 4\n",
            "--digits\n": "--digits --train 40 --test 4\n",
            "netspec train detector/train.yaml": "netspec train detector/train.yaml train.max_epochs=1",
        },
    ),
    "training": (["training.md"], FEW_STEPS),
    "debugging": (["debugging.md"], {}),
    "python": (["python.md"], {}),
    "port": (
        ["from_keras_and_pytorch.md"],
        {
            "netspec train convnet/train.yaml": f"netspec train convnet/train.yaml {SHORT}",
            "netspec import convnet.": ": ",  # files of Keras and PyTorch
        },
    ),
    "search": (
        ["search.md"],
        {
            "trials: 30": "trials: 3",
            "--trials 33": "--trials 4",
            "trial-0020": "trial-0000",
            "max_epochs=20": "max_epochs=2",
            "--minutes 2": "--trials 2 train.max_epochs=2",
        },
    ),
}
"""Pages of each task, and replacements in their commands."""


EVERY_DAY = "images", "table", "text", "language model", "time series"
"""Pages that CI runs, without compiled kernels, which take longer to compile than these trainings; the others take
half of a minute each."""


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task in EVERY_DAY else pytest.mark.exhaustive) for task in TASKS]
)
def test_commands_of_a_task_run(task: str, tmp_path: Path) -> None:
    pages, slices = TASKS[task]
    run_pages(pages, tmp_path, slices, {"NETSPEC_KERNELS": "reference"} if task in EVERY_DAY else {})
