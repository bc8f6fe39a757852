"""`transform_param` of Caffe's data layers → transforms: y = (x − mean) · scale of a part, mirrored or not.

A mean image is that of whole images, of which the same part is taken: it comes off before the crop. Caffe mirrors and
crops before it subtracts numbers; bytes are cheaper to move, and the order makes no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspec.exchange.caffe.proto.message import Message

if TYPE_CHECKING:
    from netspec.exchange.caffe.solving.data import Feeding


def image_transforms(layer: Message, feeding: Feeding) -> list[dict[str, Any]]:
    """The transforms of a data layer's images; a crop is at random in the phase TRAIN, else in the middle."""
    param = layer["transform_param"]
    made: list[dict[str, Any]] = []
    values = [float(one) for one in param["mean_value"]]
    if param["mean_file"]:
        made.append({"type": "MeanImage", "file": feeding.named(param, "mean_file")})
        if values:
            feeding.remarks.problem(
                "a mean is said twice", param, "mean_value", expected="`mean_file` or `mean_value`", got="both"
            )
    if param["crop_size"]:
        kind = "RandomCrop" if feeding.phase == "TRAIN" else "CenterCrop"
        made.append({"type": kind, "height": param["crop_size"], "width": param["crop_size"]})
    if param["mirror"]:
        made.append({"type": "RandomFlip", "mode": "horizontal"})
    return made + _numbers(values, param["scale"])


def _numbers(values: list[float], scale: float) -> list[dict[str, Any]]:
    """(x − mean) · scale, of one mean or one for each channel."""
    if len(values) > 1:
        mean: list[dict[str, Any]] = [{"type": "Normalization", "mean": values, "variance": 1.0}]
        return mean + ([{"type": "Rescaling", "scale": scale}] if scale != 1 else [])
    offset = -values[0] * scale if values else 0.0
    if scale == 1 and not offset:
        return []
    return [{"type": "Rescaling", "scale": scale, **({"offset": offset} if offset else {})}]
