"""Activation functions as chains of Caffe's layers of one element at a time, which may branch and join again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi, sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.caffe.writing.writer import NoForm

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Layer, Writer

Step: TypeAlias = tuple[str, dict[str, dict[str, Any]]]
"""A layer's type and its messages."""
Chain: TypeAlias = "list[Step | Joined]"


@dataclass(frozen=True)
class Joined:
    """Several chains from the same blob, and an Eltwise of what they give; an empty chain is the blob itself."""

    operation: str
    branches: tuple[Chain, ...]
    coefficients: tuple[float, ...] | None = None


KEEPS_INPUT = ("BNLL", "Softmax")
"""Layers whose gradient needs what they read: they do not run in place."""
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
MOST = 3.4028234663852886e38
"""The largest float32: a limit that is none."""


def steps(function: Any, rank: int, axis: int) -> Chain:
    """The layers that compute a function of values of so many axes, whose features lie along `axis`; in order."""
    kind = str(getattr(function, "type", ""))
    made = _FUNCTIONS.get(kind)
    if made is None:
        raise NoForm(f"Caffe has no layer that computes `{kind}`")
    chain = made(function)
    if "softmax" in kind:
        own = function.axis if function.axis is not None else axis
        return [("Softmax", {"softmax_param": {"axis": own % rank}}), *chain]
    return chain


def finish(w: Writer, link: Layer, function: Any, axis: int) -> None:
    """Add the function in a layer's field `activation`, in place on the layer's own blob where that can be."""
    if function is None:
        return
    chain = steps(function, len(w.shape(link.name)), axis)
    in_place = [step for step in chain if not isinstance(step, Joined) and step[0] not in KEEPS_INPUT]
    if len(in_place) < len(chain):
        before = f"{link.name}_before"
        made = next(one.message for one in reversed(w.layers) if link.name in one.message["top"])
        made["top"] = [before if top == link.name else top for top in made["top"]]
        run(w, link.name, f"{link.name}_{function.type}", before, chain)
        return
    for number, (kind, params) in enumerate(in_place):
        name = f"{link.name}_{function.type}" + (f"_{number + 1}" if number else "")
        w.layer(name, kind, [link.name], [link.name], params=params)


def run(w: Writer, top: str, name: str, bottom: str, chain: Sequence[Step | Joined]) -> None:
    """Add a chain of layers from one blob to another; the last one is called `name`."""
    for number, step in enumerate(chain):
        is_last = number == len(chain) - 1
        blob = top if is_last else f"{name}_{number + 1}"
        called = name if is_last else blob
        if isinstance(step, Joined):
            _join(w, called, bottom, blob, step)
        else:
            w.layer(called, step[0], [bottom], [blob], params=step[1])
        bottom = blob


def _join(w: Writer, name: str, bottom: str, top: str, joined: Joined) -> None:
    parts = [f"{name}_part_{number + 1}" if chain else bottom for number, chain in enumerate(joined.branches)]
    for part, chain in zip(parts, joined.branches, strict=True):
        run(w, part, part, bottom, chain)
    param = {"operation": joined.operation, "coeff": joined.coefficients}
    w.layer(name, "Eltwise", parts, [top], params={"eltwise_param": param})


def relu(slope: float = 0.0) -> Step:
    """x where it is positive, else slope · x"""
    return "ReLU", {"relu_param": {"negative_slope": slope}}


def power(scale: float, shift: float = 0.0, power: float = 1.0) -> Step:
    """(scale · x + shift) ^ power"""
    return "Power", {"power_param": {"power": power, "scale": scale, "shift": shift}}


def clip(low: float, high: float) -> Step:
    """x, within two limits"""
    return "Clip", {"clip_param": {"min": low, "max": high}}


def above(threshold: float) -> Step:
    """1 where x is greater, else 0"""
    return "Threshold", {"threshold_param": {"threshold": threshold}}


def times(*chain: Step | Joined) -> Chain:
    """x times what a chain makes of it"""
    return [Joined("PROD", ([], [*chain]))]


def plus(*branches: Chain, by: tuple[float, ...] | None = None) -> Joined:
    """The sum of what several chains make of x, each times a coefficient"""
    return Joined("SUM", branches, by)


def rectified(function: Any) -> Chain:
    """Keras's general rectifier: a slope below, a limit above, and a threshold, which x keeps above it."""
    slope, most, threshold = function.negative_slope, function.max_value, function.threshold
    if most is not None and not slope and not threshold:
        return [clip(0.0, most)]
    bent: Chain = [relu(slope)]
    if threshold:
        bent = [plus([power(1.0, -threshold), relu(slope)], [above(threshold), power(threshold)])]
    return bent if most is None else [*bent, clip(-MOST, most)]


def elu(alpha: float) -> Step:
    """x where it is positive, else alpha · (eˣ - 1)"""
    return "ELU", {"elu_param": {"alpha": alpha}}


def _gelu(function: Any) -> Chain:
    if not function.approximate:
        raise NoForm("Caffe has no error function", hint="`{type: gelu, approximate: true}` is made of what it has")
    root = sqrt(2 / pi)
    inner = plus([], [power(1.0, power=3.0)], by=(root, root * 0.044715))
    return [Joined("PROD", ([power(0.5)], [inner, ("TanH", {}), power(1.0, 1.0)]))]


def _soft_shrink(function: Any) -> Chain:
    sides: list[Chain] = [[power(sign, -function.threshold), relu()] for sign in (1.0, -1.0)]
    return [plus(*sides, by=(1.0, -1.0))]


def _hard_shrink(function: Any) -> Chain:
    return times(plus([above(function.threshold)], [power(-1.0), above(function.threshold)]))


def _threshold(function: Any) -> Chain:
    least, default = function.threshold, function.default_value
    return [plus(times(above(least)), [above(least), power(-default, default)])]


_FUNCTIONS: dict[str, Callable[[Any], Chain]] = {
    "linear": lambda _: [],
    "softmax": lambda _: [],
    "log_softmax": lambda _: [("Log", {})],
    "relu": rectified,
    "relu6": lambda _: [clip(0.0, 6.0)],
    "leaky_relu": lambda one: [relu(one.negative_slope)],
    "sigmoid": lambda _: [("Sigmoid", {})],
    "tanh": lambda _: [("TanH", {})],
    "tanh_shrink": lambda _: [plus([], [("TanH", {})], by=(1.0, -1.0))],
    "elu": lambda one: [elu(one.alpha)],
    "celu": lambda one: [power(1 / one.alpha), elu(1.0), power(one.alpha)],
    "selu": lambda _: [elu(SELU_ALPHA), power(SELU_SCALE)],
    "gelu": _gelu,
    "softplus": lambda _: [("BNLL", {})],
    "squareplus": lambda one: [plus([], [power(1.0, power=2.0), power(1.0, one.b, 0.5)], by=(0.5, 0.5))],
    "sparse_plus": lambda _: [plus([clip(-1.0, 1.0), power(0.5, 0.5, 2.0)], [power(1.0, -1.0), relu()])],
    "softsign": lambda _: times(("AbsVal", {}), power(1.0, 1.0, -1.0)),
    "log_sigmoid": lambda _: [power(-1.0), ("BNLL", {}), power(-1.0)],
    "swish": lambda one: [("Swish", {"swish_param": {"beta": one.beta}})],
    "silu": lambda _: [("Swish", {})],
    "mish": lambda _: times(("BNLL", {}), ("TanH", {})),
    "exponential": lambda _: [("Exp", {})],
    "hard_sigmoid": lambda one: [power(one.alpha, one.beta), clip(0.0, 1.0)],
    "hard_silu": lambda _: times(power(1 / 6, 0.5), clip(0.0, 1.0)),
    "hard_swish": lambda _: times(power(1 / 6, 0.5), clip(0.0, 1.0)),
    "sparse_sigmoid": lambda _: [power(0.5, 0.5), clip(0.0, 1.0)],
    "hard_tanh": lambda _: [clip(-1.0, 1.0)],
    "soft_shrink": _soft_shrink,
    "hard_shrink": _hard_shrink,
    "threshold": _threshold,
}
