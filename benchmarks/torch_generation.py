"""PyTorch as a subject: language models of the zoo that generate a text token by token, with states or cached keys."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.catalogue import ZOO
from netspec.exchange.formats.native.hdf5 import read_weights

EPSILON = 1e-3
"""`epsilon` of netspec's LayerNormalization, as in Keras."""


class CharLSTM(nn.Module):
    """`char_lstm` of the zoo: an embedding, an LSTM, and a Dense layer."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.embeddings = nn.Parameter(weights["embedding/embeddings"])
        inputs, units = weights["lstm/kernel"].shape[0], weights["lstm/recurrent_kernel"].shape[0]
        self.lstm = nn.LSTM(inputs, units)  # gates in the order of Keras: i, f, g, o
        with torch.no_grad():
            self.lstm.weight_ih_l0.copy_(weights["lstm/kernel"].T)
            self.lstm.weight_hh_l0.copy_(weights["lstm/recurrent_kernel"].T)
            self.lstm.bias_ih_l0.copy_(weights["lstm/bias"])
            self.lstm.bias_hh_l0.zero_()
        self.kernel, self.bias = weights["logits/kernel"], weights["logits/bias"]
        self.state: tuple[Tensor, Tensor] | None = None

    def restart(self) -> None:
        """Forget all tokens."""
        self.state = None

    def forward(self, token: Tensor) -> Tensor:
        """Return the logits (V,) after a token."""
        hidden, self.state = self.lstm(self.embeddings[token].view(1, -1), self.state)
        return torch.addmv(self.bias, self.kernel.T, hidden[0])


class CausalTransformer(nn.Module):
    """`transformer_lm` of the zoo: pre-norm blocks of attention and two Dense layers; keys and values are cached."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.weights = weights
        self.blocks = sum(name.endswith("query/kernel") for name in weights)
        self.length, self.width = weights["positions/embeddings"].shape
        self.heads = weights["block/0/multi_head_attention/query/bias"].shape[0]
        self.projections = [self._projection(f"block/{number}/multi_head_attention") for number in range(self.blocks)]
        self.keys = torch.zeros(self.blocks, self.heads, self.length, self.width // self.heads)
        self.values = torch.zeros_like(self.keys)
        self.position = 0

    def _projection(self, attention: str) -> tuple[Tensor, Tensor]:
        """Return the kernel (3 D, D) and the bias (3 D,) of queries, keys and values."""
        names = [f"{attention}/{name}" for name in ("query", "key", "value")]
        kernels = [self.weights[f"{name}/kernel"].reshape(self.width, -1).T for name in names]
        return torch.cat(kernels).contiguous(), torch.cat([self.weights[f"{name}/bias"].flatten() for name in names])

    def restart(self) -> None:
        """Forget all tokens."""
        self.position = 0

    def forward(self, token: Tensor) -> Tensor:
        """Return the logits (V,) after a token."""
        w = self.weights
        x = w["tokens/embeddings"][token] + w["positions/embeddings"][self.position]
        for number in range(self.blocks):
            block = f"block/{number}"
            x = x + self._attention(number, self._norm(f"{block}/layer_normalization", x))
            features = self._norm(f"{block}/layer_normalization_1", x)
            x = x + self._dense(f"{block}/dense_1", functional.gelu(self._dense(f"{block}/dense", features)))
        self.position += 1
        return self._dense("logits", self._norm("layer_normalization", x))

    def _attention(self, number: int, x: Tensor) -> Tensor:
        kernel, bias = self.projections[number]
        query, key, value = torch.addmv(bias, kernel, x).view(3, self.heads, -1)
        self.keys[number, :, self.position] = key
        self.values[number, :, self.position] = value
        seen = slice(0, self.position + 1)
        attended = functional.scaled_dot_product_attention(
            query[None, :, None], self.keys[None, number, :, seen], self.values[None, number, :, seen]
        )
        output = f"block/{number}/multi_head_attention/attention_output"
        return torch.addmv(
            self.weights[f"{output}/bias"], self.weights[f"{output}/kernel"].view(-1, self.width).T, attended.flatten()
        )

    def _norm(self, name: str, x: Tensor) -> Tensor:
        gamma, beta = self.weights[f"{name}/gamma"], self.weights[f"{name}/beta"]
        return functional.layer_norm(x, (self.width,), gamma, beta, EPSILON)

    def _dense(self, name: str, x: Tensor) -> Tensor:
        return torch.addmv(self.weights[f"{name}/bias"], self.weights[f"{name}/kernel"].T, x)


NETS: dict[str, type[CharLSTM | CausalTransformer]] = {"char_lstm": CharLSTM, "transformer_lm": CausalTransformer}
"""PyTorch's form of language models of the zoo, by name."""


class TorchGeneration:
    """A language model of the zoo that generates the most probable text in PyTorch."""

    def __init__(self, name: str, tokens: int) -> None:
        arrays = read_weights(ZOO / name / "weights.h5").arrays
        start = perf_counter()
        self._net = NETS[name]({key: torch.tensor(array, dtype=torch.float32) for key, array in arrays.items()})
        self.compile_seconds = perf_counter() - start
        self.steps_per_call = tokens

    def step(self) -> None:
        """Generate the text."""
        self.text()

    def text(self) -> list[int]:
        """Return the most probable tokens after token 1."""
        self._net.restart()
        tokens = [1]
        with torch.inference_mode():
            for _ in range(self.steps_per_call):
                tokens.append(int(self._net(torch.tensor(tokens[-1])).argmax()))
        return tokens[1:]
