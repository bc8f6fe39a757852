"""Normalizations, and factors and numbers for each channel."""

from __future__ import annotations

import numpy as np

from netspec.exchange.caffe.writing.functions import power, run
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes
from netspec.layers.initializers import Ones


@writes("BatchNormalization")
def batch_normalization(w: Writer, link: Layer) -> None:
    """BatchNorm with mean, variance and their weight, which is 1; then Scale, or Bias, in place.

    Along other axes than that of the channels a Scale by the averages: that is no BatchNorm, and not trained.
    """
    one = link.fields
    axis = one.axis % len(w.shape(link.name))
    if axis != 1:
        _by_averages(w, link, axis)
        return
    mean, variance = (Blob(w.array(link, name).values) for name in ("moving_mean", "moving_variance"))
    param = {"eps": one.epsilon, "moving_average_fraction": one.momentum}
    if w.training and not one.trainable:
        param["use_global_stats"] = True
    blobs = (mean, variance, Blob(np.ones(1, np.float32)))
    w.layer(link.name, "BatchNorm", w.bottoms(link), [link.name], *blobs, params={"batch_norm_param": param})
    if not (one.scale or one.center):
        return
    ones = Blob(np.ones(mean.values.shape, np.float32), initializer=Ones())
    scales = w.array(link, "gamma", first=one.gamma_initializer) if one.scale else ones
    shifts = [w.array(link, "beta", first=one.beta_initializer)] if one.center else []
    factors_of(w, link, [link.name], [scales, *shifts], scale=True, shift=one.center, axis=1, num_axes=1, part="_scale")


def _by_averages(w: Writer, link: Layer, axis: int) -> None:
    """gamma · (x - mean) / √(variance + epsilon) + beta, as one factor and one term for each place of the axis."""
    if w.training:
        raise NoForm("Caffe's BatchNorm is over the channels, axis 1")
    one = link.fields
    mean, variance = (w.array(link, name).values.astype(np.float64) for name in ("moving_mean", "moving_variance"))
    scale = (w.array(link, "gamma").values if one.scale else 1.0) / np.sqrt(variance + one.epsilon)
    shift = (w.array(link, "beta").values if one.center else 0.0) - mean * scale
    blobs = [Blob(numbers.astype(np.float32)) for numbers in (scale, shift)]
    param = {"scale_param": {"axis": axis, "bias_term": True}}
    w.layer(link.name, "Scale", w.bottoms(link), [link.name], *blobs, params=param)


def factors_of(
    w: Writer, link: Layer, bottoms: list[str], blobs: list[Blob], *, scale: bool, shift: bool, axis: int,
    num_axes: int, part: str = "",
) -> None:  # fmt: skip
    """Scale, with a bias or without, or Bias, from the blobs to the layer's own."""
    fillers = [w.filler(blob) for blob in blobs]
    common = {"axis": axis, "num_axes": num_axes}
    if scale:
        names = ("filler", "bias_filler") if len(bottoms) == 1 else ("bias_filler",)
        param = {**common, "bias_term": shift, **dict(zip(names, fillers, strict=False))}
        w.layer(link.name + part, "Scale", bottoms, [link.name], *blobs, of=link, params={"scale_param": param})
    elif shift:
        param = {**common, **({"filler": fillers[0]} if fillers else {})}
        w.layer(link.name + part, "Bias", bottoms, [link.name], *blobs, of=link, params={"bias_param": param})


@writes("Scale", "Bias")
def factors(w: Writer, link: Layer) -> None:
    """Learned numbers along some axes, or a second input that lies along all from the batch on."""
    one, rank = link.fields, len(w.shape(link.name))
    axis, scale = one.axis % rank, one.type == "Scale"
    use_bias = getattr(one, "use_bias", True)

    def learned(*names: str) -> list[Blob]:
        return [w.array(link, name, first=getattr(one, f"{name}_initializer")) for name in names]

    if len(link.sources) == 1:
        blobs = learned(*["scale"] * scale, *["bias"] * use_bias)
        factors_of(w, link, w.bottoms(link), blobs, scale=scale, shift=use_bias, axis=axis, num_axes=one.num_axes)
        return
    if axis != 1 and len(w.shape(link.sources[1])) > 1:
        raise NoForm("Caffe's second input lies along axes that follow one another, the batch among them")
    factors_of(w, link, w.bottoms(link), [], scale=scale, shift=not scale, axis=0, num_axes=1)
    if scale and use_bias:
        factors_of(w, link, [link.name], learned("bias"), scale=False, shift=True, axis=axis, num_axes=one.num_axes,
                 part="_bias")  # fmt: skip


@writes("Normalization")
def normalization(w: Writer, link: Layer) -> None:
    """(x - mean) / deviation by numbers that do not move: Scale with a bias, or Power where they are single."""
    one = link.fields
    mean, variance = (
        np.asarray(w.arrays[f"{link.name}/{name}"] if getattr(one, name) is None else getattr(one, name), np.float64)
        for name in ("mean", "variance")
    )
    deviation = np.maximum(np.sqrt(variance), 1e-7)
    scale, shift = (deviation, mean) if one.invert else (1 / deviation, -mean / deviation)
    if one.axis is None or (scale.size == 1 and shift.size == 1):
        run(w, link.name, link.name, w.bottoms(link)[0], [power(float(scale.flat[0]), float(shift.flat[0]))])
        return
    rank = len(w.shape(link.name))
    size = w.shape(link.name)[one.axis % rank]
    blobs = [Blob(np.broadcast_to(numbers, (size,)).astype(np.float32)) for numbers in (scale, shift)]
    param = {"axis": one.axis % rank, "bias_term": True}
    w.layer(link.name, "Scale", w.bottoms(link), [link.name], *blobs, params={"scale_param": param})


@writes("LocalResponseNormalization")
def local_response(w: Writer, link: Layer) -> None:
    """LRN; within a channel Caffe's k is 1."""
    one = link.fields
    within = one.region == "within_channel"
    if within and one.k != 1:
        raise NoForm("within a channel Caffe's LRN has a k of 1")
    if not within and len(w.shape(link.name)) != 4:
        raise NoForm("Caffe's LRN takes images")
    param = {
        "local_size": one.size, "alpha": one.alpha, "beta": one.beta, "k": one.k,
        "norm_region": "WITHIN_CHANNEL" if within else "ACROSS_CHANNELS",
    }  # fmt: skip
    w.layer(link.name, "LRN", w.bottoms(link), [link.name], params={"lrn_param": param})


@writes("MVN")
def mean_variance(w: Writer, link: Layer) -> None:
    """Each channel, or sample, by its own mean and deviation."""
    one = link.fields
    param = {"normalize_variance": one.normalize_variance, "across_channels": one.across_channels, "eps": one.epsilon}
    w.layer(link.name, "MVN", w.bottoms(link), [link.name], params={"mvn_param": param})
