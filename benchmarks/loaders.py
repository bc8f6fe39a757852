"""One loader on one data set, netspec's or PyTorch's, timed in its own process.

python -m benchmarks.loaders '{"subject": "netspec", "case": "photos", "folder": "build/bench/sets", "workers": 2}'

Prints the wall time and the CPU time of the second half of several passes over the set; the first half starts the
threads or processes and fills the file cache. `make` writes the sets, which are always identical.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

MEAN, DEVIATION = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]
"""Mean and standard deviation of ImageNet's channels, on a scale of 255."""
JITTER = 0.4
"""Strength of torchvision's ColorJitter for brightness, contrast and saturation."""
JITTERED = {"brightness_factor": 0.4, "contrast_factor": 0.4, "saturation_factor": [0.3, 0.7]}
"""The same in the terms of Keras's RandomColorJitter."""
FLIP = {"type": "RandomFlip", "mode": "horizontal"}
SETS = {"photos": (256, (375, 500), "jpg"), "pngs": (4000, (32, 32), "png"), "arrays": (10_000, (32, 32), "npz")}
"""Number of samples, height and width, and file format of each set."""
CASES = {"photos": "photos", "photos without jitter": "photos", "pngs": "pngs", "arrays": "arrays"}
"""The set of each case."""
BATCH = 64
LEAST = 24
"""Minimum number of batches that are timed, so that prefetched batches at both ends do not matter."""


def synthetic_photo(random: np.random.Generator, height: int, width: int) -> np.ndarray[Any, Any]:
    """Return a synthetic photograph, (height, width, 3) of uint8, whose JPEG is about as large as a real one."""
    from PIL import Image

    image = np.zeros((height, width, 3))
    for cells, strength in ((4, 60.0), (16, 30.0), (64, 12.0), (160, 5.0)):
        coarse = random.normal(size=(cells, cells, 3)).astype(np.float32)
        layers = [np.asarray(Image.fromarray(coarse[..., channel]).resize((width, height), 3)) for channel in range(3)]
        image += strength * np.stack(layers, axis=-1)
    return np.clip(image + 120 + random.normal(scale=2, size=image.shape), 0, 255).astype(np.uint8)


def make(folder: Path, name: str) -> None:
    """Write a set, unless it exists."""
    from PIL import Image

    samples, (height, width), kind = SETS[name]
    if (folder / name / "done").exists():
        return
    random = np.random.default_rng(0)
    for label in ("a", "b"):
        (folder / name / label).mkdir(parents=True, exist_ok=True)
    if kind == "npz":
        images = random.integers(0, 256, (samples, 3, height, width), np.uint8)
        np.savez(folder / name / "train.npz", image=images, label=np.arange(samples, dtype=np.int32) % 2)
    else:
        for index in range(samples):
            image = Image.fromarray(synthetic_photo(random, height, width))
            image.save(folder / name / "ab"[index % 2] / f"{index:06}.{kind}", quality=85)
    (folder / name / "done").touch()


class NetspecLoader:
    """The loader as a training uses it."""

    def __init__(self, case: str, folder: Path, workers: int) -> None:
        import netspec.data  # noqa: F401  # the sources and transforms are found through it
        from netspec.data.base import FieldType
        from netspec.data.loader import open_loader
        from netspec.schema.specs.data import SOURCES

        steps: list[dict[str, Any]]
        if case.startswith("photos"):
            steps = [{"type": "RandomResizedCrop", "height": 224, "width": 224}, FLIP]
            if case == "photos":
                steps.append({"type": "RandomColorJitter", **JITTERED})
        else:
            steps = [{"type": "RandomCrop", "height": 32, "width": 32, "padding": 4}, FLIP]
        steps.append({"type": "Normalization", "mean": MEAN, "variance": [deviation**2 for deviation in DEVIATION]})
        name = CASES[case]
        source = {"source": "image_folder", "path": str(folder / name)}
        if SETS[name][2] == "npz":
            source = {"source": "npz", "path": str(folder / name / "train.npz")}
        split = SOURCES.parse(
            {**source, "batch_size": BATCH, "shuffle": True, "workers": max(1, workers), "transforms": steps}
        )
        size = 224 if case.startswith("photos") else 32
        inputs = {"image": FieldType((3, size, size), "float32"), "label": FieldType((), "int32")}
        self._loader = open_loader(split, seed=1, inputs=inputs, prefetch=None if workers else 0)

    def passes(self, count: int) -> Iterator[int]:
        """Yield the number of samples of each batch in `count` passes."""
        steps = count * self._loader.steps_per_epoch
        for number, batch in enumerate(self._loader, 1):
            yield len(batch)
            if number == steps:
                break
        self._loader.close()


class TorchLoader:
    """DataLoader with torchvision's transforms, on Pillow's images as long as possible (faster), or on arrays."""

    def __init__(self, case: str, folder: Path, workers: int) -> None:
        import torch
        from torch.utils.data import DataLoader

        # Transforms need no compiled ops, whose wheel may belong to another build of torch; then the import still
        # requires these two.
        with suppress(RuntimeError):
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torchvision.datasets import ImageFolder
        from torchvision.transforms import v2

        torch.manual_seed(0)
        torch.set_num_threads(1)
        steps: list[Any] = [] if case == "arrays" else [v2.PILToTensor()]
        spatial: list[Any]
        if case.startswith("photos"):
            spatial = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
            if case == "photos":
                spatial.append(v2.ColorJitter(JITTER, JITTER, JITTER))
        else:
            spatial = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
        normal = v2.Normalize([mean / 255 for mean in MEAN], [deviation / 255 for deviation in DEVIATION])
        transform = v2.Compose([*spatial, *steps, v2.ToDtype(torch.float32, scale=True), normal])
        name = CASES[case]
        data: Any
        if SETS[name][2] == "npz":
            with np.load(folder / name / "train.npz") as arrays:
                images, labels = torch.from_numpy(arrays["image"]), arrays["label"].tolist()

            data = _Arrays(images, labels, transform)
        else:
            data = ImageFolder(str(folder / name), transform)
        self._loader = DataLoader(data, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)

    def passes(self, count: int) -> Iterator[int]:
        """Yield the number of samples of each batch in `count` passes."""
        for _ in range(count):
            for images, _ in self._loader:
                yield len(images)


class _Arrays:
    """Samples by index, the interface that DataLoader needs."""

    def __init__(self, images: Any, labels: list[int], transform: Callable[[Any], Any]) -> None:
        self._images, self._labels, self._transform = images, labels, transform

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._transform(self._images[index]), self._labels[index]


def main() -> int:
    """Time the second half of the passes."""
    request = json.loads(sys.argv[1])
    case, folder, workers = request["case"], Path(request["folder"]), request["workers"]
    make(folder, CASES[case])
    loader: Any
    if request["subject"] == "netspec":
        loader = NetspecLoader(case, folder, workers)
    else:
        loader = TorchLoader(case, folder, workers)
    half = -(-LEAST * BATCH // SETS[CASES[case]][0])
    samples = half * SETS[CASES[case]][0]
    samples_read, began, worked = 0, 0.0, 0.0
    for size in loader.passes(2 * half):
        samples_read += size
        if samples_read == samples:
            began, worked = perf_counter(), processor_seconds()
    result = {
        "seconds": perf_counter() - began,
        "processor": processor_seconds() - worked,
        "samples": samples_read - samples,
    }
    print(json.dumps(result))
    return 0


def processor_seconds() -> float:
    """Return the CPU time of this process and of those that it started, on Linux."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process may have ended
            fields = stat.read_text().rpartition(") ")[2].split()
            if int(fields[1]) == os.getpid() or stat.parent.name == str(os.getpid()):
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    sys.exit(main())
