"""What a train file may say of its data: a source per split, batches, shuffling, transforms."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt, model_validator

from netspec.schema.kinds import AnySource, AnyTransform, SOURCES
from netspec.schema.spec import Spec


class SplitSpec(Spec):
    """The samples of one split and how they become batches.

    The source is written as `source: mnist` with the source's own fields beside it, or as a mapping
    `source: {type: mnist, …}`; both mean the same.
    """

    source: AnySource
    """where the samples are: a source's type with its fields"""
    batch_size: PositiveInt
    """samples in a batch, over all workers together"""
    shuffle: bool = False
    """draw the samples in a new random order every epoch"""
    transforms: list[AnyTransform] = Field(default_factory=list)
    """what is done to each sample, in order"""
    prefetch: int = Field(default=2, ge=0, le=64)
    """batches prepared ahead of the step"""


class DataSpec(Spec):
    """The data of a training."""

    train: SplitSpec
    """samples to learn from"""
    test: SplitSpec | None = None
    """samples to evaluate on"""
