"""The recipe of `model_zoo/lenet_mnist` in PyTorch, tuned without tricks; prints the test accuracy.

The images are one tensor from the start and a batch is an index into it, so no time goes into a loader.

python benchmarks/torch_mnist.py [--channels-last] [--threads 2] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import gzip
from math import cos, pi
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

FOLDER = Path(__file__).parents[1] / "model_zoo" / "data" / "mnist"
EPOCHS, BATCH, TEST_BATCH = 4, 64, 100
RATE, MOMENTUM, DECAY = 0.05, 0.9, 5e-4


def images_and_labels(split: str) -> tuple[Tensor, Tensor]:
    """Return all images (N, 1, 28, 28), scaled as in Caffe, and labels."""
    pixels = np.frombuffer(
        gzip.decompress((FOLDER / f"{split}-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16
    )
    labels = np.frombuffer(gzip.decompress((FOLDER / f"{split}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    images = torch.from_numpy(pixels.reshape(-1, 1, 28, 28).astype(np.float32)).mul_(1 / 256)
    return images, torch.from_numpy(labels.astype(np.int64))


def lenet() -> nn.Module:
    """Caffe's LeNet, initialized as in the model zoo."""
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(inplace=True), nn.Linear(500, 10),
    )  # fmt: skip
    for parameter in model.parameters():
        nn.init.xavier_uniform_(parameter) if parameter.ndim > 1 else nn.init.zeros_(parameter)
    return model


def main() -> None:
    """Train; test and save after every epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path, help="save a checkpoint to this folder after every epoch")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    memory = torch.channels_last if options.channels_last else torch.contiguous_format
    images, labels = images_and_labels("train")
    images = images.to(memory_format=memory)
    tests, answers = images_and_labels("t10k")
    tests = tests.to(memory_format=memory)
    model = lenet()
    model.to(memory_format=memory)
    update = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY, fused=True)
    steps, step = EPOCHS * -(-len(images) // BATCH), 0
    accuracy = 0.0
    for epoch in range(EPOCHS):
        for chosen in torch.randperm(len(images)).split(BATCH):
            for group in update.param_groups:
                group["lr"] = RATE * (1 + cos(pi * step / steps)) / 2
            update.zero_grad(set_to_none=True)
            cross_entropy(model(images[chosen]), labels[chosen]).backward()
            update.step()
            step += 1
        accuracy = tested(model, tests, answers)
        if options.folder:
            states = {"model": model.state_dict(), "update": update.state_dict(), "step": step}
            torch.save(states, options.folder / f"{epoch + 1}.pt")
    print(f"accuracy {accuracy:.4f}")


def tested(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that the model classifies correctly."""
    with torch.inference_mode():
        right = sum(
            int((model(some).argmax(1) == targets).sum())
            for some, targets in zip(images.split(TEST_BATCH), labels.split(TEST_BATCH), strict=True)
        )
    return right / len(images)


if __name__ == "__main__":
    main()
