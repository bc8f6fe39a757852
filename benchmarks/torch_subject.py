"""PyTorch as a subject: one net, trained in one of the ways that PyTorch offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import catalogue, torch_nets
from benchmarks.catalogue import Net


class TorchTraining:
    """Forward, backward and an update by SGD with momentum, in float32, or with autocast to bfloat16.

    `channels_last` keeps images and kernels in that memory format; `compile` runs model and loss through torch.compile,
    `autotune` in its mode `max-autotune`. The update is torch's fused one, the fastest available. `float64` is `eager`
    in that precision, as the reference.
    """

    def __init__(
        self, net: Net, variant: str, *, compared: bool, precision: str = "float32", device: str = "cpu"
    ) -> None:
        torch.manual_seed(0)
        self.device = device
        start = perf_counter()
        memory = torch.channels_last if variant.endswith("channels_last") else torch.contiguous_format
        self.autocast = precision == "bfloat16" and variant != "float64"
        self.model = torch_nets.build(net.name, dropout=not compared)
        self.model.train()
        images, labels = map(torch.from_numpy, catalogue.synthetic_batch(net, net.batch_size))
        if variant == "float64":
            self.model.double()
            images = images.double() if images.is_floating_point() else images
        self.model.to(device)
        images, labels = images.to(device), labels.to(device)
        self._set_weights()
        if images.ndim == 4:
            self.model.to(memory_format=memory)
            images = images.to(memory_format=memory)
        self.images, self.labels = images, labels
        rate = net.compared_rate if compared else catalogue.STILL
        self.update = torch.optim.SGD(self.model.parameters(), rate, momentum=catalogue.MOMENTUM, fused=True)
        self.loss: Callable[[Tensor, Tensor], Tensor] = self._loss
        if variant.startswith(("compile", "autotune")):
            mode = "max-autotune" if variant.startswith("autotune") else None
            self.loss = torch.compile(self._loss, dynamic=False, mode=mode)
        self.step()
        self.compile_seconds = perf_counter() - start

    def _loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            scores = self.model(images)
        scores = scores if scores.dtype == torch.float64 else scores.float()
        return cross_entropy(scores.flatten(0, -2), labels.flatten())

    def step(self) -> Tensor:
        """Run one training step; return the loss before it."""
        self.update.zero_grad(set_to_none=True)
        loss = self.loss(self.images, self.labels)
        loss.backward()
        self.update.step()
        return loss

    def forward(self) -> None:
        """Compute the outputs as in inference."""
        self.model.eval()
        with torch.inference_mode(), torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            self.model(self.images)
        self.model.train()

    def gradients(self) -> None:
        """Compute loss and gradients."""
        self.update.zero_grad(set_to_none=True)
        self.loss(self.images, self.labels).backward()

    def compare(self, folder: Path, steps: int) -> list[float]:
        """Return the losses of the first steps; write the gradients of the first one, in netspec's shapes."""
        self._set_weights()
        self.update.state.clear()
        losses = [self.step().item()]
        for index, (_, parameter, shaped) in enumerate(_parameters(self.model)):
            assert parameter.grad is not None
            np.save(folder / f"{index}.npy", shaped(parameter.grad).contiguous().cpu().numpy())
        return losses + [self.step().item() for _ in range(steps - 1)]

    def _set_weights(self) -> None:
        parameters = list(_parameters(self.model))
        weights = catalogue.synthetic_weights(
            (kind, tuple(shaped(parameter).shape)) for kind, parameter, shaped in parameters
        )
        with torch.no_grad():
            for (_, parameter, shaped), values in zip(parameters, weights, strict=True):
                shaped(parameter).copy_(torch.from_numpy(values))


def set_threads(threads: int) -> None:
    """Set the number of threads of kernels."""
    torch.set_num_threads(threads)


def warm_up() -> None:
    """Run one step of a tiny net."""
    model = nn.Linear(2, 2)
    update = torch.optim.SGD(model.parameters(), 0.1, momentum=catalogue.MOMENTUM, fused=True)
    cross_entropy(model(torch.ones(1, 2)), torch.zeros(1, dtype=torch.int64)).backward()
    update.step()


Shaped = Callable[[Tensor], Tensor]
"""A view of a parameter, or of its gradient, in the shape of netspec's parameter."""


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, Shaped]]:
    """Yield netspec's parameters in the order of the net: netspec's kind, the PyTorch parameter, and its view."""
    inside: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, torch_nets.SelfAttention):
            inside.update(module.children())
            yield from _attention_parameters(module)
            continue
        if isinstance(module, torch_nets.SingleBiasLSTM):
            yield from _lstm_parameters(module)
            continue
        norm = isinstance(module, (nn.BatchNorm2d, nn.LayerNorm))
        kinds = {"weight": "gamma", "bias": "beta"} if norm else {"weight": "kernel", "bias": "bias"}
        for name, parameter in module.named_parameters(recurse=False):
            if module not in inside:
                kind = "embeddings" if isinstance(module, nn.Embedding) else kinds[name]
                yield kind, parameter, _transposed if kind == "kernel" else torch.Tensor.detach


def _transposed(tensor: Tensor) -> Tensor:
    """Transpose a dense kernel: netspec's are (inputs, outputs)."""
    return tensor.detach().t() if tensor.ndim == 2 else tensor.detach()


def _attention_parameters(module: torch_nets.SelfAttention) -> Iterator[tuple[str, nn.Parameter, Shaped]]:
    """Yield query, key and value separately, with a separate axis for heads, as in netspec."""
    heads = (module.heads, -1)

    def part(number: int, axis: int) -> Shaped:
        return lambda tensor: _transposed(tensor.chunk(3)[number]).unflatten(axis, heads)

    for number in range(3):
        yield "kernel", module.into.weight, part(number, axis=1)
        yield "bias", module.into.bias, part(number, axis=0)
    yield "kernel", module.out.weight, lambda tensor: _transposed(tensor).unflatten(0, heads)
    yield "bias", module.out.bias, torch.Tensor.detach


def _lstm_parameters(module: torch_nets.SingleBiasLSTM) -> Iterator[tuple[str, nn.Parameter, Shaped]]:
    """Yield the gates in netspec's order, without the bias that is not trained."""
    kinds = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel", "bias_ih": "bias"}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield kinds[name.rpartition("_")[0]], parameter, _transposed
