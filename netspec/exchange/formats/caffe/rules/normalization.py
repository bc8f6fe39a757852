"""BatchNorm and Scale, together and alone, and Bias."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from netspec.exchange.formats.caffe.blobs import running_statistics
from netspec.exchange.formats.caffe.fillers import initializers
from netspec.exchange.formats.caffe.importer import CaffeImporter, ImportedParameter, NetValue, ParameterBlob, rule
from netspec.exchange.formats.caffe.wiring import CaffeNode
from netspec.exchange.unsupported import UnsupportedFeature


@rule("BatchNorm")
def batch_norm(importer: CaffeImporter, node: CaffeNode) -> None:
    """BatchNormalization, merged with a Scale per channel if that is its only reader.

    If the statistics are fixed in training, the Scale, which is trained, stays a separate layer.
    """
    param, x = node.layer["batch_norm_param"], importer.read(node)
    fields: dict[str, Any] = {"epsilon": param["eps"]}
    frozen = param["use_global_stats"] and importer.is_trained(node)
    if frozen:
        fields["trainable"] = False
    elif importer.trained or "moving_average_fraction" in param:
        fields["momentum"] = param["moving_average_fraction"]
    scale = None if frozen else importer.reader(node, "Scale")
    if scale is not None and not _by_channel(scale):
        scale = None
    blobs: dict[str, ParameterBlob] = {}
    fields |= {"scale": scale is not None, "center": False}
    if scale is not None:
        factors = scale.layer["scale_param"]
        blobs["gamma"] = ParameterBlob(scale, 0)
        fields["center"] = factors["bias_term"]
        if factors["bias_term"]:
            blobs["beta"] = ParameterBlob(scale, 1)
        fields |= initializers(factors, "scale_param", gamma_initializer="filler", beta_initializer="bias_filler")
    arrays = _statistics(importer, node) if importer.weights is not None else {}
    importer.learned += [ImportedParameter(node.name, index, "") for index in range(3)]
    normalized = importer.add(node, "BatchNormalization", [x], fields, parameters=blobs, arrays=arrays)
    importer.set_top(node, normalized)
    if scale is not None:
        importer.done.add(scale.key)
        importer.set_top(scale, normalized)


def _by_channel(scale: CaffeNode) -> bool:
    param = scale.layer["scale_param"]
    return bool(param["axis"] == 1 and param["num_axes"] == 1)


def _statistics(importer: CaffeImporter, node: CaffeNode) -> dict[str, NDArray[Any]]:
    """Mean and variance, divided by their factor. Raises `UnsupportedFeature` unless that is a single number."""
    blobs = [importer.blob(node, index) for index in range(3)]
    if blobs[2].size != 1:
        raise UnsupportedFeature(
            f"its third blob, the scale factor of the moving averages, must have one value, got {blobs[2].size}",
            field="name",
        )
    mean, variance = running_statistics(blobs)
    return {"moving_mean": mean, "moving_variance": variance}


@rule("Scale")
def scaled(importer: CaffeImporter, node: CaffeNode) -> None:
    """Scale, by learned factors, or by a second input."""
    path = "scale_param"
    param, x = node.layer[path], importer.read(node)
    if len(node.bottoms) > 1 and node.bottoms[1] not in importer.parameters:
        if param["bias_term"]:
            raise UnsupportedFeature(
                "a bias in addition to a second bottom is not supported", field=f"{path}.bias_term"
            )
        importer.set_top(node, _with_second(importer, node, "Scale", path, x))
        return
    fields = {"use_bias": param["bias_term"], **initializers(param, path, bias_initializer="bias_filler")}
    fields |= initializers(param, path, scale_initializer="filler") | _along(importer, node, path, x)
    factors = _factors(importer, node)
    blobs = {"scale": factors} | (
        {"bias": ParameterBlob(node, int(factors.node is node))} if param["bias_term"] else {}
    )
    importer.set_top(node, importer.add(node, "Scale", [x], fields, parameters=blobs))


@rule("Bias")
def bias(importer: CaffeImporter, node: CaffeNode) -> None:
    """Bias, learned, or a second input."""
    path = "bias_param"
    param, x = node.layer[path], importer.read(node)
    if len(node.bottoms) > 1 and node.bottoms[1] not in importer.parameters:
        importer.set_top(node, _with_second(importer, node, "Bias", path, x))
        return
    fields = initializers(param, path, bias_initializer="filler") | _along(importer, node, path, x)
    importer.set_top(node, importer.add(node, "Bias", [x], fields, parameters={"bias": _factors(importer, node)}))


def _factors(importer: CaffeImporter, node: CaffeNode) -> ParameterBlob:
    """The learned array: the layer's own, or that of a Parameter that is its second input."""
    return ParameterBlob(importer.parameters[node.bottoms[1]] if len(node.bottoms) > 1 else node, 0)


def _along(importer: CaffeImporter, node: CaffeNode, path: str, x: NetValue) -> dict[str, int]:
    """The axes of the learned array; `num_axes: -1` means all from the first on."""
    param, rank = node.layer[path], len(x.shape)
    if len(node.bottoms) > 1:
        sizes = importer.parameters[node.bottoms[1]].layer["parameter_param"]["shape"]["dim"]
        return {"axis": importer.axis(node, f"{path}.axis", rank, param["axis"]), "num_axes": len(sizes)}
    axis, count = importer.axis(node, f"{path}.axis", rank, param["axis"]), param["num_axes"]
    if count == 0:
        raise UnsupportedFeature(
            "`num_axes: 0` (one value for all elements) is not supported", field=f"{path}.num_axes"
        )
    return {"axis": axis, "num_axes": rank - axis if count == -1 else count}


def _with_second(importer: CaffeImporter, node: CaffeNode, type_: str, path: str, x: NetValue) -> NetValue:
    """The second input has the batch first if `axis` is 0; its other axes are those that follow."""
    other = importer.read(node, 1)
    if node.layer[path]["axis"] not in (0, -len(x.shape)):
        raise UnsupportedFeature("its second bottom must have the batch axis: `axis` must be 0", field=f"{path}.axis")
    if x.shape == other.shape:
        type_ = {"Scale": "Multiply", "Bias": "Add"}[type_]
    return importer.add(node, type_, [x, other])
