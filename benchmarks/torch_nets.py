"""The nets of `nets/` in idiomatic PyTorch. Parameters are registered in the order of the net file."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


def build(name: str, dropout: bool = True) -> nn.Module:
    """Return the net called `name`; without `dropout`, all rates are 0."""
    rates = {"alexnet": 0.5, "googlenet": 0.4, "vgg_a": 0.5, "overfeat": 0.5}
    if name in rates:
        return {"alexnet": alexnet, "googlenet": GoogLeNet, "vgg_a": vgg_a, "overfeat": overfeat}[name](
            rates[name] if dropout else 0.0
        )
    plain = {
        "mlp": mlp,
        "lenet": lenet,
        "cifar10_quick": cifar10_quick,
        "resnet20": resnet20,
        "resnet50": resnet50,
        "mobilenet_v1": mobilenet_v1,
        "lstm_char": lstm_char,
        "transformer": transformer,
    }
    return plain[name]()


def _relu() -> nn.ReLU:
    return nn.ReLU(inplace=True)


def mlp() -> nn.Module:
    """MLP with 784-256-128-10 units."""
    return nn.Sequential(nn.Linear(784, 256), _relu(), nn.Linear(256, 128), _relu(), nn.Linear(128, 10))


def lenet() -> nn.Module:
    """Caffe's LeNet."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), _relu(), nn.Linear(500, 10),
    )  # fmt: skip


def cifar10_quick() -> nn.Module:
    """Caffe's cifar10_quick, whose pooling sizes round up."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2, ceil_mode=True), _relu(),
        nn.Conv2d(32, 32, 5, padding=2), _relu(), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(32, 64, 5, padding=2), _relu(), nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(1024, 64), nn.Linear(64, 10),
    )  # fmt: skip


def alexnet(dropout: float) -> nn.Module:
    """torchvision's AlexNet for images of 224 × 224, for which its adaptive pooling is the identity."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), _relu(), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), _relu(), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), _relu(),
        nn.Conv2d(384, 256, 3, padding=1), _relu(),
        nn.Conv2d(256, 256, 3, padding=1), _relu(), nn.MaxPool2d(3, 2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(9216, 4096), _relu(),
        nn.Dropout(dropout), nn.Linear(4096, 4096), _relu(), nn.Linear(4096, 1000),
    )  # fmt: skip


def vgg_a(dropout: float) -> nn.Module:
    """VGG-A, also called VGG-11."""
    layers: list[nn.Module] = []
    channels = 3
    for stage in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for filters in stage:
            layers += [nn.Conv2d(channels, filters, 3, padding=1), _relu()]
            channels = filters
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(25088, 4096), _relu(), nn.Dropout(dropout),
        nn.Linear(4096, 4096), _relu(), nn.Dropout(dropout), nn.Linear(4096, 1000),
    )  # fmt: skip


def overfeat(dropout: float) -> nn.Module:
    """OverFeat's fast model."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4), _relu(), nn.MaxPool2d(2),
        nn.Conv2d(96, 256, 5), _relu(), nn.MaxPool2d(2),
        nn.Conv2d(256, 512, 3, padding=1), _relu(),
        nn.Conv2d(512, 1024, 3, padding=1), _relu(),
        nn.Conv2d(1024, 1024, 3, padding=1), _relu(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(dropout), nn.Linear(36864, 3072), _relu(),
        nn.Dropout(dropout), nn.Linear(3072, 4096), _relu(), nn.Linear(4096, 1000),
    )  # fmt: skip


class Inception(nn.Module):
    """Four branches, concatenated along the channels."""

    def __init__(self, channels: int, one: int, before3: int, three: int, before5: int, five: int, pool: int) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(channels, one, 1), _relu())
        self.three = nn.Sequential(
            nn.Conv2d(channels, before3, 1), _relu(), nn.Conv2d(before3, three, 3, padding=1), _relu()
        )
        self.five = nn.Sequential(
            nn.Conv2d(channels, before5, 1), _relu(), nn.Conv2d(before5, five, 5, padding=2), _relu()
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, pool, 1), _relu())

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, C, H, W) → (N, one + three + five + pool, H, W)."""
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


class GoogLeNet(nn.Module):
    """GoogLeNet without LRN and auxiliary losses."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3), _relu(), nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(64, 64, 1), _relu(), nn.Conv2d(64, 192, 3, padding=1), _relu(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        )  # fmt: skip
        self.body = nn.Sequential(
            Inception(192, 64, 96, 128, 16, 32, 32),
            Inception(256, 128, 128, 192, 32, 96, 64),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Inception(480, 192, 96, 208, 16, 48, 64),
            Inception(512, 160, 112, 224, 24, 64, 64),
            Inception(512, 128, 128, 256, 24, 64, 64),
            Inception(512, 112, 144, 288, 32, 64, 64),
            Inception(528, 256, 160, 320, 32, 128, 128),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Inception(832, 256, 160, 320, 32, 128, 128),
            Inception(832, 384, 192, 384, 48, 128, 128),
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(1024, 1000))

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, 3, 224, 224) → (N, 1000)."""
        logits: Tensor = self.head(self.body(self.stem(x)))
        return logits


def _normed(channels: int, filters: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(channels, filters, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(filters)]


class Residual(nn.Module):
    """x + f(x), with a projection of x if the shape changes; then ReLU."""

    def __init__(self, body: list[nn.Module], shortcut: list[nn.Module]) -> None:
        super().__init__()
        self.body, self.shortcut = nn.Sequential(*body), nn.Sequential(*shortcut)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, C, H, W) → (N, filters, H / stride, W / stride)."""
        return torch.relu_(self.body(x) + self.shortcut(x))


def resnet20() -> nn.Module:
    """ResNet-20 with projection shortcuts."""
    layers: list[nn.Module] = [*_normed(3, 16, 3), _relu()]
    channels = 16
    for filters in (16, 32, 64):
        for _ in range(3):
            changes = filters != channels
            stride = 2 if changes else 1
            body = [*_normed(channels, filters, 3, stride), _relu(), *_normed(filters, filters, 3)]
            layers.append(Residual(body, _normed(channels, filters, 1, stride) if changes else []))
            channels = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet50() -> nn.Module:
    """ResNet-50 with the stride in the 3×3 convolution, as in torchvision."""
    layers: list[nn.Module] = [*_normed(3, 64, 7, 2), _relu(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (filters, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            body = [
                *_normed(channels, filters, 1), _relu(), *_normed(filters, filters, 3, stride), _relu(),
                *_normed(filters, 4 * filters, 1),
            ]  # fmt: skip
            layers.append(Residual(body, [] if block else _normed(channels, 4 * filters, 1, stride)))
            channels = 4 * filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def mobilenet_v1() -> nn.Module:
    """MobileNet v1 with width 1."""
    layers: list[nn.Module] = [*_normed(3, 32, 3, 2), _relu()]
    filters = (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for index, (channels, wider) in enumerate(pairwise(filters)):
        stride = 2 if index in (1, 3, 5, 11) else 1
        layers += [*_normed(channels, channels, 3, stride, channels), _relu(), *_normed(channels, wider, 1), _relu()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


class SingleBiasLSTM(nn.LSTM):
    """LSTM layers with one bias each: PyTorch's second bias is 0 and stays 0."""

    def __init__(self, inputs: int, units: int, layers: int) -> None:
        super().__init__(inputs, units, layers, batch_first=True)
        for name, parameter in self.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter)
                parameter.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, T, C) → (N, T, units)."""
        y: Tensor = super().forward(x)[0]
        return y


def lstm_char() -> nn.Module:
    """Two LSTM layers of 256 over vectors of 65 characters."""
    return nn.Sequential(nn.Embedding(65, 256), SingleBiasLSTM(256, 256, 2), nn.Linear(256, 65))


class SelfAttention(nn.Module):
    """Self-attention with 8 heads; queries, keys and values are computed by one product."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, T, C) → (N, T, C)."""
        q, k, v = self.into(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """A layer of the Transformer encoder with normalization before each of its two parts."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(size), SelfAttention(size, 8))
        self.dense = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, T, C) → (N, T, C)."""
        x = x + self.attention(x)
        return x + self.dense(x)


class TokenAndPositionEmbedding(nn.Module):
    """The sum of a vector for each symbol and one for each position."""

    def __init__(self, symbols: int, positions: int, size: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, size)
        self.places = nn.Embedding(positions, size)

    def forward(self, text: Tensor) -> Tensor:
        """text: (N, T) → (N, T, C)."""
        return self.symbols(text) + self.places.weight


def transformer() -> nn.Module:
    """A Transformer encoder of 4 layers for texts of 128 symbols."""
    size = 256
    return nn.Sequential(
        TokenAndPositionEmbedding(256, 128, size),
        *(EncoderLayer(size) for _ in range(4)),
        nn.LayerNorm(size),
        nn.Linear(size, 256),
    )
