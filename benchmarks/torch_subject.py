"""PyTorch as a subject of measurement: one net, trained in one of the ways that PyTorch offers."""

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

    `channels_last` keeps images and kernels in that memory format; `compile` runs model and loss through torch.compile.
    The update is torch's fused one, the fastest it has. `float64` is `eager` in that precision, to compare with.
    """

    def __init__(self, net: Net, variant: str, *, compared: bool, precision: str = "float32") -> None:
        torch.manual_seed(0)
        start = perf_counter()
        memory = torch.channels_last if variant.endswith("channels_last") else torch.contiguous_format
        self.autocast = precision == "bfloat16" and variant != "float64"
        self.model = torch_nets.build(net.name, dropout=not compared)
        self.model.train()
        images, labels = map(torch.from_numpy, catalogue.made_up_batch(net, net.batch_size))
        if variant == "float64":
            self.model.double()
            images = images.double()
        self._set_weights()
        if images.ndim == 4:
            self.model.to(memory_format=memory)
            images = images.to(memory_format=memory)
        self.images, self.labels = images, labels
        rate = net.compared_rate if compared else catalogue.STILL
        self.update = torch.optim.SGD(self.model.parameters(), rate, momentum=catalogue.MOMENTUM, fused=True)
        self.loss: Callable[[Tensor, Tensor], Tensor] = self._loss
        if variant.startswith("compile"):
            self.loss = torch.compile(self._loss, dynamic=False)
        self.step()
        self.compile_seconds = perf_counter() - start

    def _loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            scores = self.model(images)
        return cross_entropy(scores if scores.dtype == torch.float64 else scores.float(), labels)

    def step(self) -> Tensor:
        """One training step; the loss before it."""
        self.update.zero_grad(set_to_none=True)
        loss = self.loss(self.images, self.labels)
        loss.backward()
        self.update.step()
        return loss

    def compare(self, folder: Path, steps: int) -> list[float]:
        """The losses of the first steps; the gradients of the first of them go into the folder, in netspec's shapes."""
        self._set_weights()
        self.update.state.clear()
        losses = [self.step().item()]
        for index, (_, parameter) in enumerate(_parameters(self.model)):
            assert parameter.grad is not None
            np.save(folder / f"{index}.npy", _netspec_shaped(parameter.grad).contiguous().numpy())
        return losses + [self.step().item() for _ in range(steps - 1)]

    def _set_weights(self) -> None:
        own = list(_parameters(self.model))
        weights = catalogue.made_up_weights((kind, tuple(_netspec_shaped(one).shape)) for kind, one in own)
        with torch.no_grad():
            for (_, parameter), values in zip(own, weights, strict=True):
                _netspec_shaped(parameter).copy_(torch.from_numpy(values))


def set_threads(threads: int) -> None:
    """Have kernels use so many."""
    torch.set_num_threads(threads)


def warm_up() -> None:
    """One step of a tiny net."""
    model = nn.Linear(2, 2)
    update = torch.optim.SGD(model.parameters(), 0.1, momentum=catalogue.MOMENTUM, fused=True)
    cross_entropy(model(torch.ones(1, 2)), torch.zeros(1, dtype=torch.int64)).backward()
    update.step()


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Each parameter with netspec's word for its kind, in the order of the net."""
    kinds = {"weight": "kernel", "bias": "bias"}
    norms = {"weight": "gamma", "bias": "beta"}
    for module in model.modules():
        named = norms if isinstance(module, nn.BatchNorm2d) else kinds
        for name, parameter in module.named_parameters(recurse=False):
            yield named[name], parameter


def _netspec_shaped(tensor: Tensor) -> Tensor:
    """A view in netspec's shape: its dense kernels are (inputs, outputs)."""
    return tensor.detach().t() if tensor.ndim == 2 else tensor.detach()
