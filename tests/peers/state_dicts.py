"""A PyTorch module with every kind of layer whose weights netspec imports: its file, an input, and its outputs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

NET: dict[str, Any] = {
    "netspec": 1,
    "inputs": {
        "image": {"shape": [3, 8, 8]},
        "words": {"shape": [5], "dtype": "int32"},
    },
    "layers": [
        {"name": "stem/conv", "type": "Conv2D", "filters": 4, "kernel_size": 3, "from": "image"},
        {"name": "stem/norm", "type": "BatchNormalization", "epsilon": 1e-5},
        {"name": "act", "type": "PReLU", "shared_axes": [2, 3]},
        {"name": "up", "type": "Conv2DTranspose", "filters": 2, "kernel_size": 3, "strides": 2, "padding": "valid"},
        {"name": "groups", "type": "GroupNormalization", "groups": 2, "epsilon": 1e-5},
        {"name": "each", "type": "InstanceNormalization", "track_running_stats": True},
        {"name": "flat", "type": "Flatten"},
        {"name": "head", "type": "Dense", "units": 3},
        {"name": "embed", "type": "Embedding", "input_dim": 11, "output_dim": 6, "from": "words"},
        {"name": "ln", "type": "LayerNormalization", "epsilon": 1e-5},
        {"name": "attention", "type": "MultiHeadAttention", "num_heads": 2, "key_dim": 3, "from": ["ln", "ln"]},
        {"name": "more", "type": "MultiHeadAttention", "num_heads": 3, "key_dim": 2, "add_bias_kv": True,
         "add_zero_attn": True, "from": ["attention", "ln"]},
        {"name": "lstm", "type": "LSTM", "units": 4, "return_sequences": True},
        {"name": "gru", "type": "Bidirectional", "layer": {"type": "GRU", "units": 3, "return_sequences": True}},
        {"name": "projected", "type": "LSTM", "units": 5, "projection_units": 4, "return_sequences": True},
        {"name": "rnn", "type": "SimpleRNN", "units": 2},
    ],
    "outputs": ["head", "rnn"],
}  # fmt: skip


def record() -> dict[str, np.ndarray]:
    """Record `weights` (the bytes of a safetensors file), the inputs `image` and `words`, and the outputs."""
    torch = import_module("torch")
    safetensors = import_module("safetensors.torch")
    nn = torch.nn
    torch.manual_seed(0)
    stem = nn.ModuleDict({"conv": nn.Conv2d(3, 4, 3), "norm": nn.BatchNorm2d(4)})
    net = nn.ModuleDict(
        {
            "stem": stem,
            "act": nn.PReLU(4),
            "up": nn.ConvTranspose2d(4, 2, 3, stride=2),
            "groups": nn.GroupNorm(2, 2),
            "each": nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
            "head": nn.Linear(2 * 13 * 13, 3),
            "embed": nn.Embedding(11, 6),
            "ln": nn.LayerNorm(6),
            "attention": nn.MultiheadAttention(6, 2, batch_first=True),
            "more": nn.MultiheadAttention(6, 3, batch_first=True, add_bias_kv=True, add_zero_attn=True),
            "lstm": nn.LSTM(6, 4, batch_first=True),
            "gru": nn.GRU(4, 3, batch_first=True, bidirectional=True),
            "projected": nn.LSTM(6, 5, batch_first=True, proj_size=4),
            "rnn": nn.RNN(4, 2, batch_first=True),
        }
    )
    with torch.no_grad():
        # Initial scales and offsets of ones and zeros would hide mistakes.
        for tensor in net.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) * 0.5 + (0.1 if tensor.ndim == 1 else -0.25))
    net.eval()
    image, words = torch.randn(2, 3, 8, 8), torch.randint(0, 11, (2, 5))
    with torch.no_grad():
        x = net["act"](stem["norm"](stem["conv"](image)))
        head = net["head"](net["each"](net["groups"](net["up"](x))).flatten(1))
        y = net["ln"](net["embed"](words))
        looked = net["attention"](y, y, y, need_weights=False)[0]
        y = net["more"](looked, y, y, need_weights=False)[0]
        y = net["projected"](net["gru"](net["lstm"](y)[0])[0])[0]
        y = net["rnn"](y)[0][:, -1]
    return {
        "weights": np.frombuffer(safetensors.save(net.state_dict()), np.uint8),
        "image": image.numpy(),
        "words": words.numpy().astype(np.int32),
        "head": head.numpy(),
        "rnn": y.numpy(),
    }
