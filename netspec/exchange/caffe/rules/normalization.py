"""BatchNorm with Scale, both alone, Bias, MVN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspec.exchange.caffe.blobs import running_statistics
from netspec.exchange.caffe.fillers import initializers
from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.values import Blob, Learned, Made
from netspec.exchange.caffe.wiring import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray


@rule("BatchNorm")
def batch_norm(net: Translator, node: Node) -> None:
    """BatchNormalization; a Scale along the channels that alone reads it goes into that.

    Statistics that do not move even in training keep the Scale apart, which goes on learning.
    """
    given, x = node.layer["batch_norm_param"], net.read(node)
    fields: dict[str, Any] = {"epsilon": given["eps"]}
    frozen = given["use_global_stats"] and net.is_trained(node)
    if frozen:
        fields["trainable"] = False
    elif net.trained or "moving_average_fraction" in given:
        fields["momentum"] = given["moving_average_fraction"]
    scale = None if frozen else net.reader(node, "Scale")
    if scale is not None and not _by_channel(scale):
        scale = None
    blobs: dict[str, Blob] = {}
    fields |= {"scale": scale is not None, "center": False}
    if scale is not None:
        factors = scale.layer["scale_param"]
        blobs["gamma"] = Blob(scale, 0)
        fields["center"] = factors["bias_term"]
        if factors["bias_term"]:
            blobs["beta"] = Blob(scale, 1)
        fields |= initializers(factors, "scale_param", gamma_initializer="filler", beta_initializer="bias_filler")
    arrays = _statistics(net, node) if net.weights is not None else {}
    net.learned += [Learned(node.name, index, "") for index in range(3)]
    made = net.one(node, "BatchNormalization", [x], fields, parameters=blobs, arrays=arrays)
    net.give(node, made)
    if scale is not None:
        net.done.add(scale.key)
        net.give(scale, made)


def _by_channel(scale: Node) -> bool:
    given = scale.layer["scale_param"]
    return bool(given["axis"] == 1 and given["num_axes"] == 1)


def _statistics(net: Translator, node: Node) -> dict[str, NDArray[Any]]:
    """Mean and variance, if there is a factor for both."""
    blobs = [net.blob(node, index) for index in range(3)]
    if blobs[2].size != 1:
        raise Unsupported(f"the factor of its statistics is {blobs[2].size} numbers", "name")
    mean, variance = running_statistics(blobs)
    return {"moving_mean": mean, "moving_variance": variance}


@rule("Scale")
def scaled(net: Translator, node: Node) -> None:
    """Scale: with one input by learned factors, with two by those of the second."""
    path = "scale_param"
    given, x = node.layer[path], net.read(node)
    if len(node.bottoms) > 1 and not net.is_parameter(node, 1):
        if given["bias_term"]:
            raise Unsupported("a bias beside a second input", f"{path}.bias_term")
        net.give(node, _with_second(net, node, "Scale", path, x))
        return
    fields = {"use_bias": given["bias_term"], **initializers(given, path, bias_initializer="bias_filler")}
    fields |= initializers(given, path, scale_initializer="filler") | _along(net, node, path, x)
    factors = _factors(net, node)
    blobs = {"scale": factors} | ({"bias": Blob(node, int(factors.node is node))} if given["bias_term"] else {})
    net.give(node, net.one(node, "Scale", [x], fields, parameters=blobs))


@rule("Bias")
def bias(net: Translator, node: Node) -> None:
    """Bias: with one input learned numbers, with two those of the second."""
    path = "bias_param"
    given, x = node.layer[path], net.read(node)
    if len(node.bottoms) > 1 and not net.is_parameter(node, 1):
        net.give(node, _with_second(net, node, "Bias", path, x))
        return
    fields = initializers(given, path, bias_initializer="filler") | _along(net, node, path, x)
    net.give(node, net.one(node, "Bias", [x], fields, parameters={"bias": _factors(net, node)}))


def _factors(net: Translator, node: Node) -> Blob:
    """The learned array: the layer's own, or that of a Parameter which is its second input."""
    return Blob(net.parameters[node.bottoms[1]] if len(node.bottoms) > 1 else node, 0)


def _along(net: Translator, node: Node, path: str, x: Made) -> dict[str, int]:
    """Along which axes the learned numbers lie; -1 axes are all from the first on."""
    given, rank = node.layer[path], len(x.shape)
    if len(node.bottoms) > 1:
        sizes = net.parameters[node.bottoms[1]].layer["parameter_param"]["shape"]["dim"]
        return {"axis": net.axis(node, f"{path}.axis", rank, given["axis"]), "num_axes": len(sizes)}
    axis, count = net.axis(node, f"{path}.axis", rank, given["axis"]), given["num_axes"]
    if count == 0:
        raise Unsupported("one number for all: it has no axis of its own here", f"{path}.num_axes")
    return {"axis": axis, "num_axes": rank - axis if count == -1 else count}


def _with_second(net: Translator, node: Node, type_: str, path: str, x: Made) -> Made:
    """The second input has the batch first where `axis` is 0: its other axes lie along those that follow."""
    other = net.read(node, 1)
    if node.layer[path]["axis"] not in (0, -len(x.shape)):
        raise Unsupported("its second input has no axis for the batch", f"{path}.axis")
    if x.shape == other.shape:
        type_ = {"Scale": "Multiply", "Bias": "Add"}[type_]
    return net.one(node, type_, [x, other])


@rule("MVN")
def mean_variance(net: Translator, node: Node) -> None:
    """MVN."""
    given = node.layer["mvn_param"]
    fields = {
        "normalize_variance": given["normalize_variance"],
        "across_channels": given["across_channels"],
        "epsilon": given["eps"],
    }
    net.give(node, net.one(node, "MVN", [net.read(node)], fields))
