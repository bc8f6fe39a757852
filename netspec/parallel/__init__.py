"""Communicators and the strategies that spread one training over several workers."""

from __future__ import annotations

from netspec.parallel.base import Communicator, Pending
from netspec.parallel.world import join, world

__all__ = ["Communicator", "Pending", "join", "world"]
