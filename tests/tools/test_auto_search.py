"""`netspec.auto_search`: from a folder of images to the best of several nets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import netspec


def test_images_are_searched_and_predicted(current_folder: Path) -> None:
    for index in range(20):
        path = Path("photos", ("dark", "bright")[index % 2], f"{index}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 20 + 200 * (index % 2) + index, np.uint8)).save(path)
    files: list[Any] = []
    short = {"train.max_epochs": 1}
    result = netspec.auto_search("photos", short, trials=2, device="reference", report_files=files.append)
    assert [file.train for file in files] == [Path("photos/train.yaml")]
    assert result.folder == Path("runs/photos-search")
    assert result.baseline is not None
    assert result.baseline.number == 0
    assert result.baseline.fields["net.vars.width"] == 32
    assert result.best is not None
    prediction = netspec.predict(result.best.run_dir, "photos/dark/0.png", device="reference")
    assert {"bright", "dark"} >= {str(name) for name in prediction.answers["class"]}
