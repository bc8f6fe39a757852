"""Nets for estimators: a default one by the data's size, and the parts that features and targets have in any net."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, ProgramKind
from netspec.errors import InputError, listing
from netspec.schema.specs.links import Links, resolve_names
from netspec.schema.specs.net import InputSpec, NetSpec
from netspec.training.inference.decoding import decoders_of
from netspec.training.preprocessing import PreprocessingRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class NetParts:
    """The inputs and the output of a net that an estimator feeds and reads."""

    features: str
    """Input that receives the features."""
    target: str
    """Input that receives the target, which only losses and metrics read."""
    output: str
    """Output that predictions are read from: the first one."""

    @classmethod
    def of(cls, net: NetSpec) -> NetParts:
        """Find the parts. Raises `InputError` unless the net has one input for features and one for the target."""
        links = resolve_names(net)
        compared = {source for link in links.losses for source in link.sources}
        compared |= {source for link in links.metrics for source in link.sources}
        read = _read_by(links, links.outputs)
        features = [name for name in net.inputs if name in read]
        targets = [name for name in net.inputs if name in _read_by(links, compared) - read]
        for kind, names in (("features", features), ("the target", targets)):
            if len(names) != 1:
                raise InputError(
                    f"the net must have exactly one input for {kind}", location=net.where("inputs"),
                    expected="one input that layers read, and one that only losses and metrics read",
                    got=listing(names) if names else "none",
                )  # fmt: skip
        return cls(features[0], targets[0], links.outputs[0])


def _read_by(links: Links, values: Collection[str]) -> set[str]:
    """Return these values, and the names of all values that they depend on."""
    return {*values, *(source for layer in links.computing(values) for source in layer.sources)}


def classifier_net(shape: Sequence[int], samples: int, classes: int) -> dict[str, Any]:
    """Return a net with two hidden layers for samples (…), whose target is the index of a class."""
    return {
        "netspec": 1,
        "name": "classifier",
        "inputs": {"x": {"shape": list(shape)}, "y": {"shape": [], "dtype": "int32"}},
        "layers": [*_hidden_layers(shape, samples), {"name": "logits", "type": "Dense", "units": classes}],
        "outputs": ["logits"],
        "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "y"], "from_logits": True}],
        "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "y"]}],
    }


def regressor_net(shape: Sequence[int], targets: NDArray[Any]) -> dict[str, Any]:
    """Return a net with two hidden layers for samples (…) and targets (N, K).

    The loss compares normalized values, and the output has the units of the targets.
    """
    variance = targets.var(axis=0)
    moments = {"mean": targets.mean(axis=0).tolist(), "variance": np.where(variance > 0, variance, 1.0).tolist()}
    count = targets.shape[1]
    return {
        "netspec": 1,
        "name": "regressor",
        "inputs": {"x": {"shape": list(shape)}, "y": {"shape": [count]}},
        "layers": [
            *_hidden_layers(shape, len(targets)),
            {"name": "normalized", "type": "Dense", "units": count},
            {"name": "prediction", "type": "Normalization", "invert": True, **moments},
            {"name": "target", "type": "Normalization", "from": "y", **moments},
        ],
        "outputs": ["prediction"],
        "losses": [{"type": "MeanSquaredError", "from": ["normalized", "target"]}],
    }


def _hidden_layers(shape: Sequence[int], samples: int) -> list[dict[str, Any]]:
    """Return layers that normalize the features, and two hidden layers: the more samples, the wider."""
    units = 32 if samples < 1_000 else 64 if samples < 10_000 else 128
    flatten = [{"type": "Flatten", "from": "x"}] if len(shape) > 1 else []
    hidden = [{"type": "Dense", "units": units, "activation": "relu"} for _ in range(2)]
    return [*flatten, {"type": "Normalization", **({} if flatten else {"from": "x"})}, *hidden]


def check_classes(net: NetSpec, output: str, count: int) -> None:
    """Raise `InputError` unless an output of a net has the probabilities of `count` classes."""
    if decoders_of(net, PreprocessingRecord())[output].probabilities is None:
        raise InputError(
            f"the output `{output}` does not have the probabilities of classes", location=net.where("losses"),
            expected="a loss that reads it, such as SparseCategoricalCrossentropy",
        )  # fmt: skip
    shape = Compiler(net, device=open_device("null")).graph(ProgramKind.PREDICT, 1).outputs[output].shape[1:]
    if list(shape) != [count] and not (count == 2 and np.prod(shape, dtype=int) == 1):
        raise InputError(
            f"the output `{output}` does not fit the classes of the data", location=net.where("layers"),
            expected=f"shape [{count}]" + (", or [1] for two classes" if count == 2 else ""), got=str(list(shape)),
        )  # fmt: skip


def class_targets(classes: NDArray[Any], count: int, target: InputSpec) -> NDArray[Any]:
    """Return class indices (N,) for the target of a net: as indices, or one-hot if it has one element per class."""
    if list(target.shape) == [count] and count > 1:
        one_hot: NDArray[Any] = np.eye(count, dtype=target.dtype)[classes]
        return one_hot
    return classes.astype(target.dtype).reshape(len(classes), *target.shape)


def value_targets(values: NDArray[Any], target: InputSpec) -> NDArray[Any]:
    """Return values (N,) or (N, K) in the shape of the target of a net. Raises `InputError` if they don't fit."""
    if np.prod(target.shape, dtype=int) != values[0].size:
        raise InputError(
            "the target of the net has a different number of elements", location=target.where("shape"),
            expected=f"{values[0].size} for each sample", got=str(list(target.shape)),
        )  # fmt: skip
    return values.reshape(len(values), *target.shape)
