"""Transforms of samples as graph ops, for exported models that contain their preprocessing."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from netspec.data.base import FieldType, Transform
from netspec.data.transforms.channels import ReverseChannels
from netspec.data.transforms.cropping import CenterCrop
from netspec.data.transforms.mean_image import MeanImage
from netspec.data.transforms.normalization import EPSILON, Normalization
from netspec.data.transforms.rescaling import Rescaling
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.shape import Flip, Slice
from netspec.graph.ops.source import constant
from netspec.graph.types import DType
from netspec.graph.value import Value


@singledispatch
def transform_ops(transform: Transform, x: Value) -> Value | None:
    """Return x (N, …) transformed like samples of the data; None if the transform has no exact form in ops."""
    return None


@transform_ops.register
def _(transform: Rescaling, x: Value) -> Value:
    return cast(x, DType.FLOAT32) * transform.scale + transform.offset


@transform_ops.register
def _(transform: Normalization, x: Value) -> Value:
    over_channels = (-1, *(1,) * (len(x.shape) - 2))
    mean = np.asarray(transform.mean, np.float32).reshape(over_channels)
    deviation = np.maximum(np.sqrt(np.asarray(transform.variance, np.float64)), EPSILON).astype(np.float32)
    return (cast(x, DType.FLOAT32) - constant(mean)) / constant(deviation.reshape(over_channels))


@transform_ops.register
def _(transform: MeanImage, x: Value) -> Value:
    return cast(x, DType.FLOAT32) - constant(np.asarray(transform.mean, np.float32))


@transform_ops.register
def _(transform: CenterCrop, x: Value) -> Value:
    for axis, size in ((2, transform.height), (3, transform.width)):
        start = (x.shape[axis] - size) // 2
        x = Slice(axis, start, start + size)(x)
    return x


@transform_ops.register
def _(transform: ReverseChannels, x: Value) -> Value:
    return Flip(1)(x)


def has_ops(transform: Transform, field: FieldType) -> bool:
    """Return whether a transform of samples of this type can be part of a graph."""
    return not field.ragged and transform_ops.dispatch(type(transform)) is not transform_ops.dispatch(object)
