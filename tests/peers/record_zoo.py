"""Record what the reference implementations of the model zoo's nets answer, in float64: layers, loss and gradients.

    .venv-peers/bin/python -m tests.peers.record_zoo [--output DIRECTORY] [MODEL …]

Weights and images are those of `tests.peers.zoo_nets`; layers are recorded in inference, the loss and its gradients in
training, without dropout. Without MODEL, `.keras` files of Keras's models are recorded too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.peers.recordings import RECORDED, save_answers
from tests.peers.zoo_nets import KERAS_FILES, LABELS, NETS, ZooNet, image, summary, weight

PERIOD = 61
"""Number of values that the weights of recorded files repeat."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(NETS)} [all]")
    parser.add_argument("--output", type=Path, default=RECORDED)
    arguments = parser.parse_args()
    if unknown := set(arguments.models) - set(NETS):
        parser.error(f"there are no models {', '.join(sorted(unknown))}")
    for name in arguments.models or NETS:
        print(save_answers(arguments.output, f"zoo_{name}", record(NETS[name])))
    if not arguments.models:
        print(save_answers(arguments.output, "zoo_keras_files", record_keras_files()))


def record(net: ZooNet) -> dict[str, np.ndarray]:
    """Names and shapes of the states, summaries of layers and gradients by name, loss, parameters and operations."""
    if net.reference.startswith("keras."):
        return record_keras(net)
    torch = import_module("torch")
    model = reference_model(net, net.size).double()
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
        **counts(net),
    }


def reference_model(net: ZooNet, size: int) -> Any:
    """Build the reference for images of a size.

    torchvision's kernels for detection are missing if PyTorch is built for another device; models need none.
    """

    def register_fake(_name: str) -> Any:
        return lambda function: function

    torch = import_module("torch")
    with mock.patch.object(torch.library, "register_fake", register_fake):
        import_module("torchvision")
        module, _, function = net.reference.rpartition(".")
        sizes = {net.size_argument: size} if net.size_argument else {}
        return getattr(import_module(module), function)(**net.arguments, **sizes)


def layer_summaries(model: Any, x: Any) -> dict[str, np.ndarray]:
    """Return a summary of each module's output in inference, for modules that are called once."""
    torch = import_module("torch")
    summaries: dict[str, np.ndarray] = {}
    calls: Counter[str] = Counter()

    def hook(name: str) -> Any:
        def observe(_module: Any, _inputs: Any, output: Any) -> None:
            calls[name] += 1
            summaries[name] = summary(name, output.numpy())  # before an in-place activation changes the array

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
    """Return the loss, and summaries of its gradients, in training without dropout."""
    torch = import_module("torch")
    model.train()
    for module in model.modules():
        if any(word in type(module).__name__ for word in ("Drop", "Stochastic")):
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


def counts(net: ZooNet) -> dict[str, np.ndarray]:
    """Count parameters, and FLOPs of convolutions and matrix products for one image, of the card's size."""
    torch = import_module("torch")
    counter = import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.device("meta"), torch.no_grad():
        model = reference_model(net, net.card_size).eval()
        with counter:
            model(torch.zeros(1, 3, net.card_size, net.card_size))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": np.array(parameters), "flops": np.array(int(counter.get_total_flops()))}


def record_keras(net: ZooNet) -> dict[str, np.ndarray]:
    """Like `record`, for a Keras model on PyTorch. States have netspec's shapes."""
    os.environ["KERAS_BACKEND"] = "torch"
    torch, keras = import_module("torch"), import_module("keras")
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    module, _, function = net.reference.rpartition(".")

    def made(size: int) -> Any:
        keras.utils.clear_session()  # default names of layers are numbered
        arguments = {"weights": None, "classifier_activation": None, "dropout": 0.0, **net.arguments}
        return getattr(import_module(module), function)(input_shape=(size, size, 3), **arguments)

    counter = import_module("torch.utils.flop_counter").FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        made(net.card_size)(torch.zeros(1, net.card_size, net.card_size, 3, dtype=torch.float64))
    model, states = made(net.size), {}
    for variable in model.weights:
        like = _channels_first(np.zeros(variable.shape), variable.path)
        array = weight(variable.path, like.shape)
        states[variable.path] = like.shape
        variable.assign(_channels_last(array, variable.path))
    x = torch.from_numpy(image(net).transpose(0, 2, 3, 1).copy())
    layers = {layer.name: layer.output for layer in model.layers}
    # otherwise BatchNormalization computes in float32
    with mock.patch.object(import_module("keras.src.backend"), "result_type", return_value="float64"):
        outputs = keras.Model(model.inputs, layers)(x, training=False)
        loss = torch.nn.functional.cross_entropy(model(x, training=True), torch.from_numpy(LABELS))
    summaries = {
        name: summary(name, _channels_first_image(output.detach().numpy())) for name, output in outputs.items()
    }
    loss.backward()
    gradients = {
        variable.path: summary(variable.path, _channels_first(variable.value.grad.numpy(), variable.path))
        for variable in model.trainable_weights
    }
    return {
        "states": np.array([f"{name} {list(shape)}" for name, shape in states.items()]),
        "layers": np.array(list(summaries)),
        "layer_summaries": np.array(list(summaries.values()), "float32"),
        "loss": np.array(loss.item()),
        "gradients": np.array(list(gradients)),
        "gradient_summaries": np.array(list(gradients.values()), "float32"),
        "parameters": np.array(sum(int(np.prod(variable.shape)) for variable in model.trainable_weights)),
        "flops": np.array(int(counter.get_total_flops())),
    }


def record_keras_files() -> dict[str, np.ndarray]:
    """Return a `.keras` file and its logits for each model of `KERAS_FILES`.

    Weights repeat, so that a file of some 20 MB is small when it is compressed.
    """
    torch, keras = import_module("torch"), import_module("keras")
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    answers = {}
    for name, function in KERAS_FILES.items():
        keras.utils.clear_session()  # default names of layers are numbered
        net = NETS[name]
        model = getattr(keras.applications, function)(
            weights=None, classifier_activation=None, input_shape=(net.size, net.size, 3)
        )
        for variable in model.weights:
            repeated = weight(variable.path, tuple(variable.shape)).reshape(-1)[:PERIOD]
            variable.assign(np.resize(repeated, variable.shape))
        x = image(net).transpose(0, 2, 3, 1).astype(np.float32)
        with torch.no_grad():
            answers[f"{name}/logits"] = model(x, training=False).numpy()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, f"{name}.keras")
            model.save(file)
            answers[f"{name}/file"] = np.frombuffer(file.read_bytes(), np.uint8)
    return answers


def _channels_first(array: np.ndarray, path: str) -> np.ndarray:
    """Transpose a kernel of Keras to netspec's shape: (filters, channels, H, W), depthwise (channels, 1, H, W)."""
    if array.ndim != 4:
        return array
    return array.transpose(2, 3, 0, 1) if _is_depthwise(path) else array.transpose(3, 2, 0, 1)


def _channels_last(array: np.ndarray, path: str) -> np.ndarray:
    if array.ndim != 4:
        return array
    return array.transpose(2, 3, 0, 1) if _is_depthwise(path) else array.transpose(2, 3, 1, 0)


def _is_depthwise(path: str) -> bool:
    return "_dw_" in path


def _channels_first_image(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array


if __name__ == "__main__":
    main()
