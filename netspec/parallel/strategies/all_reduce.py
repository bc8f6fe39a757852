"""Synchronous data parallelism: every step follows the mean of all workers' gradients."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from netspec.parallel.strategies.base import Strategy
from netspec.schema.amounts import Bytes
from netspec.schema.kinds import STRATEGIES


@STRATEGIES.register
class AllReduce(Strategy):
    """Sum the gradients of all workers in every step, while the rest of the step is computed.

    Gradients are sent in buckets, in the order in which they come to be, as soon as a bucket is full; the update waits
    for them. The steps are those of one worker with the whole batch, but for the rounding of sums. Li et al. 2020,
    "PyTorch distributed", arXiv:2006.15704.
    """

    strategy: Literal["all_reduce"] = "all_reduce"
    bucket: Bytes = 4 << 20
    """bytes of gradients that are sent together: fewer overlap more, more cost fewer calls"""
    first_bucket: Bytes = 256 << 10
    """bytes of the first bucket, which is small so that something is on its way early"""
    deterministic: bool = False
    """the same weights to the last bit on any number of workers (up to `shards`): a batch is computed in as many parts,
    whose gradients are added in the order of a fixed tree. It takes longer, and batch normalization sees a part"""
    shards: PositiveInt = 8
    """parts of a batch, where it is `deterministic`: there can be as many workers, or fewer"""

    samples: ClassVar = ({}, {"bucket": 1000, "first_bucket": 100}, {"deterministic": True, "shards": 4})
