"""Sharded optimizer: each worker updates a part of the parameters (ZeRO-1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.schema.specs.kinds import STRATEGIES


@STRATEGIES.register
class ShardedOptimizer(SynchronousStrategy):
    """Each worker keeps a part of what the solver remembers, moves that part of the parameters, and hands it round.

    It gets the sums of its part of the gradients, while the rest is computed, instead of all sums: with p workers the
    solver's states and its arithmetic are a p-th of one worker's, and the bytes those of `all_reduce`. Parameters are
    cut anywhere, but where a solver, a constraint or `clipnorm` looks at a whole one: that is a single worker's. The
    steps are those of `all_reduce`, but for the rounding of sums. Averages of weights that are evaluated (`ema`) are
    put together on each worker for it. Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion
    parameter models", arXiv:1910.02054: stage 1.
    """

    strategy: Literal["sharded_optimizer"] = "sharded_optimizer"

    foreign_fields: ClassVar[dict[str, str]] = {
        **SynchronousStrategy.foreign_fields,
        "stage": "here it is ZeRO's stage 1: the solver's states are divided",
        "reduce_bucket_size": "here it is `bucket`, in bytes: `25MB`",
        "allgather_bucket_size": "here it is `bucket`, in bytes: `25MB`",
    }
    samples: ClassVar = ({}, {"bucket": 1000, "first_bucket": 100})
