"""Record what the reference implementations of the model zoo's nets answer, in float64: layers, loss and gradients.

    .venv-peers/bin/python -m tests.peers.record_zoo [--output DIRECTORY] [MODEL …]

Weights and images are those of `tests.peers.zoo_nets`; layers are recorded in inference, the loss and its gradients in
training, without dropout.
"""

from __future__ import annotations

import argparse
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.peers.recordings import RECORDED, save_answers
from tests.peers.zoo_nets import LABELS, NETS, ZooNet, image, summary, weight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(NETS), choices=[[], *NETS], metavar="MODEL")
    parser.add_argument("--output", type=Path, default=RECORDED)
    arguments = parser.parse_args()
    for name in arguments.models:
        print(save_answers(arguments.output, f"zoo_{name}", record(NETS[name])))


def record(net: ZooNet) -> dict[str, np.ndarray]:
    """Names and shapes of the states, summaries of layers and gradients by name, loss, parameters and operations."""
    torch = import_module("torch")
    model = torchvision_model(net).double()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(weight(name, tuple(tensor.shape))))
    layers = layer_summaries(model, torch.from_numpy(image(net)))
    loss, gradients = training_summaries(model, net)
    return {
        "states": np.array([f"{name} {list(tensor.shape)}" for name, tensor in model.state_dict().items()]),
        "layers": np.array(list(layers)),
        "layer_summaries": np.array(list(layers.values()), "float32"),
        "loss": np.array(loss),
        "gradients": np.array(list(gradients)),
        "gradient_summaries": np.array(list(gradients.values()), "float32"),
        "parameters": np.array(sum(parameter.numel() for parameter in model.parameters())),
        "flops": np.array(operations(net)),
    }


def torchvision_model(net: ZooNet) -> Any:
    """The reference. Its kernels for detection are missing if PyTorch is built for another device; models need none."""
    torch = import_module("torch")
    with mock.patch.object(torch.library, "register_fake", return_value=lambda function: function):
        import_module("torchvision")
    module, _, function = net.reference.rpartition(".")
    return getattr(import_module(module), function)(weights=None, **net.arguments)


def layer_summaries(model: Any, x: Any) -> dict[str, np.ndarray]:
    """Of the output of each module in inference, if the module is called once."""
    torch = import_module("torch")
    summaries: dict[str, np.ndarray] = {}
    calls: Counter[str] = Counter()

    def hook(name: str) -> Any:
        def observe(_module: Any, _inputs: Any, output: Any) -> None:
            calls[name] += 1
            summaries[name] = summary(name, output.numpy())  # now: an activation in place changes the array

        return observe

    for name, module in model.named_modules():
        if not list(module.children()):
            module.register_forward_hook(hook(name))
    with torch.no_grad():
        model.eval()(x)
    for _, module in model.named_modules():
        module._forward_hooks.clear()
    return {name: value for name, value in summaries.items() if calls[name] == 1}


def training_summaries(model: Any, net: ZooNet) -> tuple[float, dict[str, np.ndarray]]:
    """The loss, and summaries of its gradients, in training without dropout."""
    torch = import_module("torch")
    model.train()
    for module in model.modules():
        if "Drop" in type(module).__name__:
            module.eval()
    outputs = model(torch.from_numpy(image(net)))
    labels = torch.from_numpy(LABELS)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    losses = [
        factor * torch.nn.functional.cross_entropy(output, labels)
        for factor, output in zip(net.loss_weights, outputs, strict=True)
    ]
    sum(losses).backward()
    return sum(loss.item() for loss in losses), {
        name: summary(name, parameter.grad.numpy()) for name, parameter in model.named_parameters()
    }


def operations(net: ZooNet) -> int:
    """Multiplications and additions of convolutions and matrix products, for one image of the card's size."""
    torch = import_module("torch")
    counter = import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.device("meta"), torch.no_grad(), counter:
        torchvision_model(net).eval()(torch.zeros(1, 3, net.card_size, net.card_size))
    return int(counter.get_total_flops())


if __name__ == "__main__":
    main()
