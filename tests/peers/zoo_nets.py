"""Nets of the model zoo and their reference implementations: weights and batch of both, and what is compared.

Weights follow from their names, so recordings contain none. Each layer's output and each gradient is recorded as its
mean, its standard deviation and a few elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

ELEMENTS = 8
"""Number of elements of each array that are compared, in addition to mean and standard deviation."""


@dataclass(frozen=True)
class ZooNet:
    """A model of the zoo and its reference."""

    reference: str
    """The function that makes the reference, as on the card: `torchvision.models.resnet18`."""
    size: int = 64
    """Height and width of the images in the comparison: the smallest that the net takes, or a little more."""
    card_size: int = 224
    """Height and width of the images of which the card counts the operations."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the function."""
    size_argument: str = ""
    """The argument of the function that takes the size of images; empty if there is none."""
    variant_of: str = ""
    """The model whose net file, with `overrides`, is this net; by default the model called as this net."""
    overrides: tuple[str, ...] = ()
    """Changes to the net file."""
    loss_weights: tuple[float, ...] = (1.0,)
    """Weights of the cross-entropies of the outputs in training; several if there are auxiliary outputs."""
    cost: Literal["fast", "slow", "exhaustive"] = "slow"
    """Marker of the comparison. Limits are lower than in CONTRIBUTING, because there are many nets: `slow` above 1 s,
    `exhaustive` above 2 s."""


AS_MADE = {"init_weights": False}
"""Leave out random initial weights, which take long to draw."""
NETS = {
    "alexnet": ZooNet("torchvision.models.alexnet", cost="exhaustive"),
    "convnext_tiny": ZooNet("torchvision.models.convnext_tiny", cost="exhaustive"),
    "densenet121": ZooNet("torchvision.models.densenet121", cost="exhaustive"),
    "efficientnet_b0": ZooNet("torchvision.models.efficientnet_b0", cost="exhaustive"),
    "googlenet": ZooNet(
        "torchvision.models.googlenet", arguments=AS_MADE, loss_weights=(1, 0.3, 0.3), cost="exhaustive"
    ),
    "inception_v3": ZooNet(  # the auxiliary classifier has a window of 17 × 17
        "torchvision.models.inception_v3", 299, 299, arguments=AS_MADE, loss_weights=(1, 0.4), cost="exhaustive"
    ),
    "mlp_mixer": ZooNet("timm.models.mixer_s16_224", size_argument="img_size", cost="exhaustive"),
    "mobilenet_v1": ZooNet("keras.applications.MobileNet"),
    "mobilenet_v2": ZooNet("torchvision.models.mobilenet_v2"),
    "mobilenet_v3": ZooNet("torchvision.models.mobilenet_v3_large", cost="exhaustive"),
    "mobilenet_v3_small": ZooNet(
        "torchvision.models.mobilenet_v3_small", variant_of="mobilenet_v3", overrides=("vars.variant=small",)
    ),
    "resnet18": ZooNet("torchvision.models.resnet18"),
    "resnet50": ZooNet("torchvision.models.resnet50", cost="exhaustive"),
    "squeezenet": ZooNet("torchvision.models.squeezenet1_0", cost="fast"),
    "vgg16": ZooNet("torchvision.models.vgg16", arguments=AS_MADE, cost="exhaustive"),
    "vgg_a": ZooNet("torchvision.models.vgg11", arguments=AS_MADE, cost="exhaustive"),
    "vit_tiny": ZooNet(
        "torchvision.models.VisionTransformer",
        size_argument="image_size",
        arguments={"patch_size": 16, "num_layers": 12, "num_heads": 3, "hidden_dim": 192, "mlp_dim": 768},
    ),
}

KERAS_FILES = {"mobilenet_v1": "MobileNet", "densenet121": "DenseNet121"}
"""Models that read `.keras` files of a function of keras.applications."""
BATCH = 2
LABELS = np.array([3, 7])


def image(net: ZooNet) -> NDArray[np.float64]:
    """The batch (N, 3, H, W)."""
    return np.random.default_rng(1).standard_normal((BATCH, 3, net.size, net.size))


def weight(name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the array of a state by its name in PyTorch or in Keras; its scale keeps activations of order 1."""
    random, kind = np.random.default_rng(crc32(name.encode())), name.replace("/", ".").rpartition(".")[2]
    if kind in ("running_var", "moving_variance"):
        array = random.uniform(0.5, 1.5, shape)
    elif kind in ("weight", "gamma") and len(shape) == 1:  # of a normalization
        array = random.uniform(0.5, 1.0, shape)
    elif kind in ("weight", "kernel") and len(shape) > 1:
        terms = shape[0] if kind == "kernel" and len(shape) == 2 else prod(shape[1:])
        array = random.standard_normal(shape) * np.sqrt(2 / terms)
    else:
        array = 0.1 * random.standard_normal(shape)
    return array.astype(np.float32)


def summary(name: str, array: NDArray[Any]) -> NDArray[np.float64]:
    """Mean, standard deviation, and `ELEMENTS` elements that follow from the name."""
    chosen = np.random.default_rng(crc32(name.encode())).integers(array.size, size=ELEMENTS)
    return np.array([array.mean(), array.std(), *array.reshape(-1)[chosen]])
