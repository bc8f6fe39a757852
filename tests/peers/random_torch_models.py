"""Random models of `torch.nn`: layers and functions in random order, each reading tensors that exist already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Function = Callable[..., torch.Tensor]
BATCH, MAX_ELEMENTS = 2, 4096


@dataclass(frozen=True)
class Step:
    """One operation: its name in a report, its function, and the indices of the values that it reads."""

    text: str
    function: Function
    reads: tuple[int, ...]


class RandomModel(nn.Module):
    """Steps in order; the result is the last value, or the last two."""

    def __init__(self, steps: Sequence[Step], example: torch.Tensor, results: int) -> None:
        super().__init__()
        self.steps, self.example, self.results = list(steps), example, results
        self.parts = nn.ModuleList(step.function for step in steps if isinstance(step.function, nn.Module))

    def forward(self, x: torch.Tensor) -> Any:
        values = [x]
        for step in self.steps:
            values.append(step.function(*(values[index] for index in step.reads)))
        return values[-1] if self.results == 1 else (values[-1], values[-2])

    def describe(self) -> list[str]:
        """A line for each step."""
        reads = (", ".join("x" if not index else f"v{index}" for index in step.reads) for step in self.steps)
        lines = [
            f"v{index} = {step.text}({read})"
            for index, (step, read) in enumerate(zip(self.steps, reads, strict=True), 1)
        ]
        return [f"x: {self.example.dtype} {list(self.example.shape)}", *lines]


ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("ReLU", {}), ("LeakyReLU", {"negative_slope": 0.2}), ("ELU", {"alpha": 0.7}), ("SELU", {}),
    ("CELU", {"alpha": 1.5}),
    ("GELU", {}), ("GELU", {"approximate": "tanh"}), ("SiLU", {}), ("Mish", {}), ("Hardswish", {}), ("Hardsigmoid", {}),
    ("Hardtanh", {"min_val": -0.5, "max_val": 2.0}), ("Softplus", {}), ("Softplus", {"beta": 2.0}), ("Softsign", {}),
    ("Softshrink", {"lambd": 0.3}), ("Hardshrink", {"lambd": 0.3}), ("Tanhshrink", {}), ("LogSigmoid", {}),
    ("Threshold", {"threshold": 0.1, "value": 0.5}), ("ReLU6", {}), ("Sigmoid", {}), ("Tanh", {}), ("RReLU", {}),
    ("Dropout", {}), ("Identity", {}), ("PReLU", {}),
]  # fmt: skip

UNARY: dict[str, Function] = {
    "abs": torch.abs,
    "neg": torch.neg,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "exp": lambda x: torch.exp(-x * x),
    "sqrt": lambda x: torch.sqrt(x.abs() + 1),
    "rsqrt": lambda x: torch.rsqrt(x * x + 1),
    "square": lambda x: x * x,
    "pow3": lambda x: x**3,
    "log1p": lambda x: torch.log1p(x.abs()),
    "clamp": lambda x: x.clamp(-0.5, 1.0),
    "clamp_min": lambda x: x.clamp(min=0.2),
    "affine": lambda x: 1 - 0.5 * x,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "swish": lambda x: x * x.sigmoid(),
    "masked": lambda x: x.masked_fill(x > 0.5, 0.25),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "round_trip": lambda x: x.double().float(),
    "hard_sigmoid": lambda x: functional.relu6(x + 3) / 6,
    "reciprocal": lambda x: 1 / (2 + x * x),
    "sign": torch.sign,
    "roll": lambda x: torch.roll(x, 1, -1),
    "flip": lambda x: x.flip(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "normalize": lambda x: functional.normalize(x, dim=-1),
    "standardize": lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt(),
    "sort": lambda x: x.sort(-1).values,
    "topk": lambda x: x.topk(1, -1).values,
    "tile": lambda x: torch.cat([x, x], -1),
    "logsumexp": lambda x: x.logsumexp(-1, keepdim=True),
    "amax": lambda x: x.amax(-1, keepdim=True),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "std": lambda x: x.std(-1, keepdim=True),
    "prod": lambda x: x.prod(-1, keepdim=True),
    "norm": lambda x: x.norm(dim=-1, keepdim=True),
    "argmax": lambda x: x.argmax(-1, keepdim=True).float(),
    "first_half": lambda x: x[..., : (x.shape[-1] + 1) // 2],
    "every_other": lambda x: x[..., ::2],
    "unbind": lambda x: torch.stack(x.unbind(-1)[::-1], -1),
    "glue": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "expand": lambda x: x + x.mean(-1, keepdim=True).expand_as(x),
    "nan_to_num": torch.nan_to_num,
    "pad": lambda x: functional.pad(x, (1, 2), value=0.5),
    "lerp": lambda x: torch.lerp(x, x.tanh(), 0.3),
    "index": lambda x: x.index_select(-1, torch.tensor([0, x.shape[-1] - 1])),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
}

BINARY: dict[str, Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "div": lambda x, y: x / (1 + y * y),
    "gate": lambda x, y: x * torch.sigmoid(y),
    "where": lambda x, y: torch.where(x > y, x, y * 0.5),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y], 2).flatten(1, 2),
    "mean": lambda x, y: (x + y) / 2,
    "atan2": lambda x, y: torch.atan(x / (y.abs() + 1)),
}


class Draw:
    """Draws a step for a value of some shape."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def module(self, name: str, *arguments: Any, **fields: Any) -> tuple[str, Function]:
        """A layer of torch.nn; its parameters are drawn by torch."""
        layer = getattr(nn, name)(*arguments, **fields)
        return repr(layer).replace("\n", " "), layer

    def function(self, shape: Sequence[int]) -> tuple[str, Function]:
        """A layer or function that takes one value of this shape."""
        random = self.random
        kind = random.random()
        if kind < 0.2:
            name, fields = random.choice(ACTIVATIONS)
            return self.module(name, **fields)
        if kind < 0.4:
            name = random.choice(list(UNARY))
            return name, UNARY[name]
        return {4: self.image, 3: self.sequence, 2: self.vector}[len(shape)](shape)

    def image(self, shape: Sequence[int]) -> tuple[str, Function]:
        """A layer or function of (N, C, H, W)."""
        random, (_, channels, height, width) = self.random, shape
        filters, kernel = random.choice([2, 3, 4, 6]), random.choice([1, 2, 3])
        groups = random.choice([g for g in (1, 2, channels) if channels % g == 0])
        small = min(height, width)
        options: list[Callable[[], tuple[str, Function]]] = [
            lambda: self.module(
                "Conv2d", channels, filters * groups, kernel, stride=random.choice([1, 1, 2]), groups=groups,
                padding=kernel // 2, dilation=random.choice([1, 1, 2]) if small > 4 else 1, bias=random.random() < 0.7,
                padding_mode=random.choice(["zeros"] * 4 + ["reflect", "replicate", "circular"]),
            ),
            lambda: self.module("Conv2d", channels, filters, (1, kernel), padding="same"),
            lambda: self.module(
                "ConvTranspose2d", channels, filters, kernel, stride=random.choice([1, 2]), output_padding=0,
                padding=random.choice([0, kernel // 2]),
            ),
            lambda: self.statistics(self.module("BatchNorm2d", channels, affine=random.random() < 0.8)),
            lambda: self.module("GroupNorm", groups, channels),
            lambda: self.module("InstanceNorm2d", channels, affine=random.random() < 0.5),
            lambda: self.module("LocalResponseNorm", 3),
            lambda: self.module("MaxPool2d", 2, ceil_mode=random.random() < 0.3),
            lambda: self.module("MaxPool2d", 3, stride=random.choice([1, 2]), padding=1),
            lambda: self.module(
                "AvgPool2d", 2, stride=1, padding=random.choice([0, 1]), count_include_pad=random.random() < 0.5
            ),
            lambda: self.module("AdaptiveAvgPool2d", random.choice([1, (height, 1), small])),
            lambda: self.module("AdaptiveMaxPool2d", 1),
            lambda: self.module("LPPool2d", 2, 2),
            lambda: self.module("Upsample", scale_factor=2, mode=random.choice(["nearest", "bilinear", "bicubic"])),
            lambda: self.module("Upsample", size=(5, 6), mode="bilinear", align_corners=random.random() < 0.5),
            lambda: self.module("PReLU", channels),
            lambda: self.module("Softmax2d"),
            lambda: self.module(random.choice(["ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d"]), (1, 0, 1, 1)),
            lambda: self.module("PixelUnshuffle", 2) if small % 2 == 0 else self.module("ReLU"),
            lambda: self.module("PixelShuffle", 2) if channels % 4 == 0 else self.module("ReLU"),
            lambda: self.module("ChannelShuffle", groups),
            lambda: self.module("Flatten"),
            lambda: ("tokens", lambda x: x.flatten(2).transpose(1, 2)),
            lambda: ("channels_last", lambda x: x.permute(0, 2, 3, 1)),
            lambda: ("rows", lambda x: x.permute(0, 2, 1, 3).flatten(2)),
            lambda: ("mean_map", lambda x: x.mean((2, 3))),
            lambda: ("squeeze_excite", lambda x: x * x.mean((2, 3), keepdim=True).sigmoid()),
            lambda: ("split", lambda x: torch.cat([x[:, :1].relu(), x[:, 1:]], 1)),
            lambda: ("crop", lambda x: x[:, :, : x.shape[2] - 1, 1:] if min(x.shape[2:]) > 1 else x),
        ]  # fmt: skip
        return random.choice(options)()

    def sequence(self, shape: Sequence[int]) -> tuple[str, Function]:
        """A layer or function of (N, T, F)."""
        random, (_, steps, features) = self.random, shape
        units = random.choice([2, 3, 4, 6])
        heads = random.choice([h for h in (1, 2, 4) if features % h == 0])
        options: list[Callable[[], tuple[str, Function]]] = [
            lambda: self.module("Linear", features, units, bias=random.random() < 0.8),
            lambda: self.module("Linear", features, units),
            lambda: self.module("LayerNorm", features, bias=random.random() < 0.8),
            lambda: self.module("LayerNorm", (steps, features)),
            lambda: self.module("RMSNorm", features),
            lambda: self.module("Conv1d", steps, units, 1),
            lambda: self.module("Conv1d", steps, units, 3, padding=1, stride=random.choice([1, 2])),
            lambda: self.module("ConvTranspose1d", steps, units, 2, stride=2),
            lambda: self.statistics(self.module("BatchNorm1d", steps)),
            lambda: self.module("InstanceNorm1d", steps, affine=True) if features > 1 else self.module("ReLU"),
            lambda: self.module("MaxPool1d", 2) if features > 1 else self.module("ReLU"),
            lambda: self.module("AvgPool1d", 2, 1) if features > 1 else self.module("ReLU"),
            lambda: self.module("AdaptiveAvgPool1d", 1),
            lambda: self.recurrent(features, units),
            lambda: self.recurrent(features, units),
            lambda: self.attention(features, heads),
            lambda: self.encoder(features, heads),
            lambda: ("transpose", lambda x: x.transpose(1, 2)),
            lambda: ("last_step", lambda x: x[:, -1]),
            lambda: ("first_steps", lambda x: x[:, : (x.shape[1] + 1) // 2]),
            lambda: ("mean_over_steps", lambda x: x.mean(1)),
            lambda: ("max_over_steps", lambda x: x.max(1).values),
            lambda: ("scores", lambda x: (x @ x.transpose(1, 2) / 3).softmax(-1) @ x),
            lambda: ("causal", lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True)),
            lambda: ("einsum", lambda x: torch.einsum("btf,bsf->bts", x, x)),
            lambda: ("image", lambda x: x.unsqueeze(1)),
            lambda: ("tril", lambda x: torch.tril(x)),
            lambda: self.module("Flatten"),
            lambda: self.module("Unflatten", 2, (heads, features // heads)),
        ]
        return random.choice(options)()

    def vector(self, shape: Sequence[int]) -> tuple[str, Function]:
        """A layer or function of (N, F)."""
        random, features = self.random, shape[1]
        units = random.choice([2, 3, 4, 6, 8])
        parts = random.choice([p for p in (1, 2, 3, 4) if features % p == 0])
        options: list[Callable[[], tuple[str, Function]]] = [
            lambda: self.module("Linear", features, units, bias=random.random() < 0.8),
            lambda: self.module("Linear", features, units),
            lambda: self.statistics(self.module("BatchNorm1d", features)),
            lambda: self.module("LayerNorm", features),
            lambda: self.module("GroupNorm", parts, features) if features // parts > 1 else self.module("ReLU"),
            lambda: self.module("GLU") if features % 2 == 0 else self.module("ReLU"),
            lambda: self.module("Unflatten", 1, (parts, features // parts)),
            lambda: ("outer", lambda x: x.unsqueeze(2) * x.unsqueeze(1)),
            lambda: ("column", lambda x: x[:, :, None]),
            lambda: ("baddbmm", lambda x: torch.baddbmm(x[:, None], x[:, None], x[:, :, None] * x[:, None])),
        ]
        return random.choice(options)()

    def statistics(self, step: tuple[str, Function]) -> tuple[str, Function]:
        """Give a layer moving averages that differ from those of an untrained one."""
        layer: Any = step[1]
        layer.running_mean.uniform_(-0.5, 0.5)
        layer.running_var.uniform_(0.5, 2.0)
        return step

    def recurrent(self, features: int, units: int) -> tuple[str, Function]:
        """The sequence, or the last state, of an LSTM, GRU or RNN."""
        random = self.random
        text, layer = self.module(
            random.choice(["LSTM", "GRU", "RNN"]), features, units, num_layers=random.choice([1, 1, 2]),
            bidirectional=random.random() < 0.3, batch_first=random.random() < 0.8, bias=random.random() < 0.9,
        )  # fmt: skip
        return text, First(layer, random.random() < 0.3)

    def attention(self, features: int, heads: int) -> tuple[str, Function]:
        """Self-attention of a sequence."""
        text, layer = self.module(
            "MultiheadAttention", features, heads, batch_first=True, bias=self.random.random() < 0.8
        )
        return text, SelfAttention(layer)

    def encoder(self, features: int, heads: int) -> tuple[str, Function]:
        """An encoder layer of a Transformer."""
        return self.module(
            "TransformerEncoderLayer", features, heads, 8, batch_first=True, norm_first=self.random.random() < 0.5,
            activation=self.random.choice(["relu", "gelu"]),
        )  # fmt: skip


class First(nn.Module):
    """The sequence that a recurrent layer computes, or its last state."""

    def __init__(self, layer: Any, state: bool) -> None:
        super().__init__()
        self.layer, self.state = layer, state

    def forward(self, x: torch.Tensor) -> Any:
        sequence, state = self.layer(x)
        if not self.state or not self.layer.batch_first:
            return sequence
        return (state[0] if isinstance(state, tuple) else state)[-1]


class SelfAttention(nn.Module):
    """Self-attention of a sequence."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x, x, x, need_weights=False)[0]


def random_model(seed: str) -> RandomModel:
    """A model in evaluation mode; the same for the same seed."""
    random = Random(seed)
    torch.manual_seed(random.getrandbits(32))
    draw, steps = Draw(random), []
    example, values = _input(random)
    if not example.dtype.is_floating_point:
        text, layer = draw.module("Embedding", 7, random.choice([4, 6, 8]))
        steps.append(Step(text, layer, (0,)))
        values.append(layer(example))
    count = len(steps) + random.randint(3, 9)
    while len(steps) < count:
        step = _step(draw, values)
        if step is not None:
            steps.append(step[0])
            values.append(step[1])
    model = RandomModel(steps, example, random.choice([1, 1, 2]))
    model.eval()
    return model


def _input(random: Random) -> tuple[torch.Tensor, list[torch.Tensor]]:
    shape = random.choice([(3, 8, 8), (2, 6, 7), (4, 5, 5), (5, 4), (6, 8), (3, 6), (8,), (6,), (12,), (5, 0), (4, 0)])
    if 0 in shape:
        tokens = torch.randint(0, 7, (BATCH, shape[0]))
        return tokens, [tokens]
    x = torch.randn(BATCH, *shape)
    return x, [x]


def _step(draw: Draw, values: Sequence[torch.Tensor]) -> tuple[Step, torch.Tensor] | None:
    """Draw a step and compute its result for the example; None if shapes do not fit, or the result is too large."""
    random = draw.random
    floats = [index for index, value in enumerate(values) if value.is_floating_point()]
    first = floats[-1] if random.random() < 0.8 else random.choice(floats)
    others = [index for index in floats if values[index].shape == values[first].shape]
    if random.random() < 0.2 and len(others) > 1:
        reads: tuple[int, ...] = (first, random.choice(others))
        text = random.choice(list(BINARY))
        function = BINARY[text]
    else:
        reads = (first,)
        text, function = draw.function(values[first].shape)
    if isinstance(function, nn.Module):
        function.eval()
    try:
        with torch.no_grad():
            result = function(*(values[index] for index in reads))
    except (RuntimeError, ValueError, AssertionError):
        return None
    fits = result.dim() in (2, 3, 4) and result.shape[0] == BATCH and 0 < result.numel() <= MAX_ELEMENTS
    return (Step(text, function, reads), result) if fits and bool(result.isfinite().all()) else None
