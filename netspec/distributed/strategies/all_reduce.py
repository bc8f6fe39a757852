"""Synchronous data parallelism: every step follows the mean of all workers' gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.errors import Problem
from netspec.graph.ops.all_reduce import CommEncoding
from netspec.schema.specs.kinds import STRATEGIES


@STRATEGIES.register
class AllReduce(SynchronousStrategy):
    """Sum the gradients of all workers in every step, while the rest of the step is computed.

    Gradients are collected in buckets in the order in which they are computed. A bucket is sent as soon as it is full;
    the update waits for all of them. The steps equal those of one worker with the full batch, except for the rounding
    of sums. Li et al. 2020, "PyTorch distributed", arXiv:2006.15704.
    """

    strategy: Literal["all_reduce"] = "all_reduce"
    reduce_in: Literal["float32", "bfloat16", "float16"] = "float32"
    """Element type in which gradients are sent: 16 bits take half the bytes. They are added in float32 and rounded
    twice, before they are sent and after they are summed; values above 65504 overflow in float16."""
    hierarchical: Literal["auto"] | bool = "auto"
    """Sums within each host first, then among hosts, and distributes the sums within each host, if there are several
    hosts with several workers each. `reduce_in` then applies between hosts only. `auto`: if all hosts have the same
    number of workers and the total is not a power of two (otherwise MPI is as fast)."""
    deterministic: bool = False
    """Bit-identical weights on any number of workers up to `shards`: a batch is computed in `shards` parts, whose
    gradients are added in the order of a fixed tree. Steps take longer, and batch normalization computes statistics of
    each part."""
    shards: PositiveInt = 8
    """Number of parts of a batch with `deterministic: true`; the number of workers may be the same or smaller. At most
    the number of samples of a batch."""

    samples: ClassVar = (
        {},
        {"bucket": 1000, "first_bucket": 100},
        {"reduce_in": "bfloat16"},
        {"hierarchical": True},
        {"deterministic": True, "shards": 4},
    )

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield problems of `shards`, and of fields that `deterministic` excludes."""
        most = training.data.train.batch_size
        if self.deterministic and self.shards > most:
            yield Problem(
                "`shards` is larger than the batch", self.where("shards") or self.where("deterministic"),
                "shards", expected=f"{most} or fewer, which is the `batch_size`", got=str(self.shards),
            )  # fmt: skip

        if not self.deterministic and self.shards != type(self).model_fields["shards"].default:
            yield Problem(
                "`shards` has no effect without `deterministic: true`", self.where("shards"), "shards",
                expected="`deterministic: true`, or no `shards`", got=str(self.shards),
            )  # fmt: skip

        if self.deterministic and self.reduce_in != "float32":
            yield Problem(
                "`deterministic: true` cannot be combined with 16-bit sums, which depend on the number of workers",
                self.where("reduce_in"), "reduce_in",
                expected="`reduce_in: float32`", got=self.reduce_in,
            )  # fmt: skip

        if self.deterministic and self.hierarchical is True:
            yield Problem(
                "`hierarchical: true` and `deterministic: true` cannot be combined", self.where("hierarchical"),
                "hierarchical",
                expected="one of them", got="both",
            )  # fmt: skip

    def remarks(self, hosts: Sequence[int]) -> Iterator[str]:
        """Report that `hierarchical: true` has no effect on these hosts."""
        yield from super().remarks(hosts)
        if self.hierarchical is True and not self.is_hierarchical(hosts):
            have = "all workers are on one host" if len(hosts) == 1 else "one host has a single worker"
            yield f"`hierarchical: true` has no effect: it needs several hosts with several workers each, but {have}"

    def is_hierarchical(self, hosts: Sequence[int]) -> bool:
        """Whether gradients are summed within each host first; `hosts` holds the number of workers of each host."""
        total, is_clustered = sum(hosts), len(hosts) > 1 and min(hosts) > 1
        pays = len(set(hosts)) == 1 and total & (total - 1) != 0
        return is_clustered and (pays if self.hierarchical == "auto" else self.hierarchical)

    def comm_encoding(self, shape: tuple[int, ...], stage: int | None = None) -> CommEncoding:
        """Send gradients unencoded, or in 16 bits."""
        return CommEncoding("" if self.reduce_in == "float32" else self.reduce_in)
