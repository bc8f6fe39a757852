"""What a train file may say of its data: a source per split, batches, shuffling, transforms.

A split is written flat, `{source: mnist, split: train, batch_size: 64, …}`: `source` picks the class, which inherits
the fields common to all sources from `SplitFields` and adds its own.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt

from netspec.schema.spec import Member, Registry, Spec

TRANSFORMS: Registry[Spec] = Registry("transform")
AnyTransform = Annotated[Spec, Member(TRANSFORMS)]


class SplitFields(Spec):
    """What every data source has in YAML: how its samples become batches."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "batch": "here it is `batch_size`",
        "type": "here it is `source`",
        "transform": "here it is `transforms`, a list",
        "transform_param": "`transform_param` is Caffe's name: here it is `transforms`, a list",
        "preprocessing": "here it is `transforms`, a list",
        "num_workers": "here it is `prefetch`",
        "seed": "`seed` belongs under `train`",
        "epochs": "it belongs under `train`, as `max_epochs`",
        "drop_last": "not needed: each sample is taken exactly once an epoch",
    }

    batch_size: PositiveInt
    """samples in a batch, over all workers together"""
    shuffle: bool = False
    """draw the samples in a new random order every epoch"""
    transforms: list[AnyTransform] = Field(default_factory=list)
    """what is done to each sample, in order"""
    inputs: dict[str, str] = Field(default_factory=dict)
    """which field of the source feeds which input of the net, as `{net input: source field}`; default: same names"""
    limit: PositiveInt | None = None
    """use only the first so many samples"""
    prefetch: int = Field(default=2, ge=0, le=64)
    """batches prepared ahead of the step, where preparing one takes long enough to be worth a thread"""


SOURCES: Registry[SplitFields] = Registry("data source", tag="source")
AnySource = Annotated[SplitFields, Member(SOURCES)]


class DataSpec(Spec):
    """The data of a training."""

    foreign_fields: ClassVar[dict[str, str]] = dict.fromkeys(
        ("validation", "valid", "val", "eval"), "here it is `test`"
    )

    train: AnySource
    """samples to learn from"""
    test: AnySource | None = None
    """samples to evaluate on"""
