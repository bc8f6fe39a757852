"""Activation functions as chains of Caffe's layers of one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.caffe.writing.writer import NoForm

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Layer, Writer

Step: TypeAlias = tuple[str, dict[str, dict[str, Any]]]
"""A layer's type and its messages."""

KEEPS_INPUT = ("BNLL", "Softmax")
"""Layers whose gradient needs what they read: they do not run in place."""
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def steps(function: Any, rank: int, axis: int) -> list[Step]:
    """The layers that compute a function of values of so many axes, whose features lie along `axis`; in order."""
    kind = str(getattr(function, "type", ""))
    made = _FUNCTIONS.get(kind)
    if made is None:
        raise NoForm(f"Caffe has no layer that computes `{kind}`")
    if kind == "softmax":
        own = function.axis if function.axis is not None else axis
        return [("Softmax", {"softmax_param": {"axis": own % rank}})]
    return made(function)


def finish(w: Writer, link: Layer, function: Any, axis: int) -> None:
    """Add the function in a layer's field `activation`, in place on the layer's own blob where that can be."""
    if function is None:
        return
    chain = steps(function, len(w.shape(link.name)), axis)
    if any(kind in KEEPS_INPUT for kind, _ in chain):
        last = w.layers[-1].message
        last["top"] = [f"{link.name}_before"]
        run(w, link.name, f"{link.name}_{function.type}", f"{link.name}_before", chain)
        return
    for number, (kind, params) in enumerate(chain):
        name = f"{link.name}_{function.type}" + (f"_{number + 1}" if number else "")
        w.layer(name, kind, [link.name], [link.name], params=params)


def run(w: Writer, top: str, name: str, bottom: str, chain: list[Step]) -> None:
    """Add a chain of layers from one blob to another; the last one is called `name`."""
    for number, (kind, params) in enumerate(chain):
        is_last = number == len(chain) - 1
        blob = top if is_last else f"{name}_{number + 1}"
        w.layer(name if is_last else blob, kind, [bottom], [blob], params=params)
        bottom = blob


def relu(slope: float = 0.0) -> Step:
    """x where it is positive, else slope · x"""
    return "ReLU", {"relu_param": {"negative_slope": slope}}


def power(scale: float, shift: float = 0.0) -> Step:
    """scale · x + shift"""
    return "Power", {"power_param": {"scale": scale, "shift": shift}}


def clip(low: float, high: float) -> Step:
    """x, within two limits"""
    return "Clip", {"clip_param": {"min": low, "max": high}}


def rectified(function: Any) -> list[Step]:
    """Keras's general rectifier, without a threshold: slope and limit."""
    if function.threshold:
        raise NoForm("Caffe's ReLU has no threshold")
    if function.max_value is None:
        return [relu(function.negative_slope)]
    if function.negative_slope:
        raise NoForm("Caffe's Clip has no slope")
    return [clip(0.0, function.max_value)]


def elu(alpha: float) -> Step:
    """x where it is positive, else alpha · (eˣ - 1)"""
    return "ELU", {"elu_param": {"alpha": alpha}}


_FUNCTIONS: dict[str, Callable[[Any], list[Step]]] = {
    "linear": lambda _: [],
    "softmax": lambda _: [],
    "relu": rectified,
    "relu6": lambda _: [clip(0.0, 6.0)],
    "leaky_relu": lambda one: [relu(one.negative_slope)],
    "sigmoid": lambda _: [("Sigmoid", {})],
    "tanh": lambda _: [("TanH", {})],
    "elu": lambda one: [elu(one.alpha)],
    "celu": lambda one: [power(1 / one.alpha), elu(1.0), power(one.alpha)],
    "selu": lambda _: [elu(SELU_ALPHA), power(SELU_SCALE)],
    "softplus": lambda _: [("BNLL", {})],
    "log_sigmoid": lambda _: [power(-1.0), ("BNLL", {}), power(-1.0)],
    "swish": lambda one: [("Swish", {"swish_param": {"beta": one.beta}})],
    "silu": lambda _: [("Swish", {})],
    "exponential": lambda _: [("Exp", {})],
    "hard_sigmoid": lambda one: [power(one.alpha, one.beta), clip(0.0, 1.0)],
    "sparse_sigmoid": lambda _: [power(0.5, 0.5), clip(0.0, 1.0)],
    "hard_tanh": lambda _: [clip(-1.0, 1.0)],
}
