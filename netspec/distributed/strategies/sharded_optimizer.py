"""Sharded optimizer: each worker updates a part of the parameters (ZeRO-1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.schema.specs.kinds import STRATEGIES


@STRATEGIES.register
class ShardedOptimizer(SynchronousStrategy):
    """Each worker keeps a part of the solver's states, updates that part of the parameters, and distributes it.

    It receives the sums of its part of the gradients while the rest is computed. With p workers, each has a p-th of the
    solver's states and of its arithmetic, and the bytes equal those of `all_reduce`. Parameters are cut anywhere,
    except if a solver, a constraint or `clipnorm` needs the full parameter: then one worker has all of it. The steps
    equal those of `all_reduce`, except for the rounding of sums. Averages of weights that are evaluated (`ema`) are
    gathered on each worker for that. Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion
    parameter models", arXiv:1910.02054: stage 1.
    """

    strategy: Literal["sharded_optimizer"] = "sharded_optimizer"

    foreign_fields: ClassVar[dict[str, str]] = {
        **SynchronousStrategy.foreign_fields,
        "stage": "not needed: this is always ZeRO stage 1, which shards the solver's states",
        "reduce_bucket_size": "use `bucket`, in bytes: `25MB`",
        "allgather_bucket_size": "use `bucket`, in bytes: `25MB`",
    }
    samples: ClassVar = ({}, {"bucket": 1000, "first_bucket": 100})
