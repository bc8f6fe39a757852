"""`Synchronous`: what the strategies have in common in which every step follows the mean of all workers' gradients."""

from __future__ import annotations

from netspec.graph.ops.communication import Sending
from netspec.parallel.strategies.base import Strategy
from netspec.schema.amounts import Bytes


class Synchronous(Strategy):
    """Base of the strategies that sum up the gradients of all workers in every step, in buckets."""

    bucket: Bytes = 4 << 20
    """bytes of gradients that are sent together: fewer overlap more, more cost fewer calls"""
    first_bucket: Bytes = 256 << 10
    """bytes of the first bucket, which is small so that something is on its way early"""

    def sending(self, shape: tuple[int, ...], stage: int | None = None) -> Sending:
        """In which form the gradient of a parameter is sent, by default in the last stage."""
        return Sending()
