"""The nets of the benchmarks and their inputs, the same for netspec and its peers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "nets"
ZOO = Path(__file__).parents[1] / "model_zoo"
LENET = ZOO / "lenet_mnist" / "net.yaml"


@dataclass(frozen=True)
class Net:
    """One net: its file, and the batch size for training."""

    name: str
    batch_size: int
    shape: tuple[int, ...]
    """Shape of one image, row of features, or text."""
    classes: int = 1000
    symbols: int = 0
    """Number of distinct symbols of a text, each of which has a label; 0 if the input is not a text."""
    in_zoo: bool = False
    """Whether its file is that of the model zoo."""
    dropout: bool = False
    """Whether it has dropout, with the rate `vars.dropout`."""

    @property
    def file(self) -> Path:
        """The net file."""
        if self.name == "lenet":
            return LENET
        return ZOO / self.name / "net.yaml" if self.in_zoo else FOLDER / f"{self.name}.yaml"

    @property
    def compared_rate(self) -> float:
        """Learning rate of the steps that are compared.

        A power of two, so that gradients can be computed from the first step without rounding; lower for large nets,
        whose gradients are large, so that rounding does not decide where a step leads.
        """
        return 2.0**-12 if self.classes == 10 else 2.0**-17


NETS = {
    net.name: net
    for net in (
        Net("mlp", 64, (784,), 10),
        Net("lenet", 64, (1, 28, 28), 10),
        Net("cifar10_quick", 100, (3, 32, 32), 10, in_zoo=True),
        Net("resnet20", 128, (3, 32, 32), 10),
        Net("alexnet", 32, (3, 224, 224), in_zoo=True, dropout=True),
        Net("googlenet", 16, (3, 224, 224), dropout=True),
        Net("vgg_a", 8, (3, 224, 224), in_zoo=True, dropout=True),
        Net("overfeat", 16, (3, 231, 231), dropout=True),
        Net("resnet50", 8, (3, 224, 224)),
        Net("mobilenet_v1", 16, (3, 224, 224)),
        Net("lstm_char", 32, (64,), 65, symbols=65),
        Net("transformer", 16, (128,), 256, symbols=256),
    )
}
"""All nets, in the order of the table."""

ALSO = {"jax": ("mlp", "lenet", "resnet20"), "sklearn": ("mlp",)}
"""Peers other than PyTorch, and the nets that they have."""

STILL = 1e-6
"""Learning rate of the steps that are timed: low, since many steps on one batch could diverge."""
MOMENTUM = 0.9


def synthetic_batch(net: Net, batch_size: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return images (normally distributed) and labels; or texts, and a label for each symbol."""
    import numpy as np

    random = np.random.default_rng(0)
    if net.symbols:
        texts = random.integers(0, net.symbols, (batch_size, *net.shape), np.int32)
        return texts, random.integers(0, net.classes, (batch_size, *net.shape))
    images = random.standard_normal((batch_size, *net.shape), dtype=np.float32)
    return images, random.integers(0, net.classes, batch_size)


def synthetic_weights(parts: Iterable[tuple[str, tuple[int, ...]]]) -> Iterator[NDArray[Any]]:
    """Yield initial values of parameters for pairs of a kind (`kernel`, `bias`, `embeddings` …) and netspec's shape.

    Kernels are those of He et al. 2015, so that signals neither vanish nor explode; no array is 0 or 1 throughout, so
    that an error in any of them shows. They are generated one by one, so that they do not count as memory of the net.
    """
    import numpy as np

    for index, (kind, shape) in enumerate(parts):
        values = np.random.default_rng(index).standard_normal(shape, dtype=np.float32)
        if kind.endswith("kernel"):
            inputs = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
            values *= np.float32(sqrt(2 / inputs))
        else:
            values = values * np.float32(0.1) + np.float32(kind == "gamma")
        yield values
