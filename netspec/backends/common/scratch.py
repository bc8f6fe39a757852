"""`ScratchMemory`: arrays in the workspace of a kernel."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.graph.execution_plan import align_up
from netspec.graph.types import DType


class ScratchMemory:
    """Allocates arrays from a workspace, one after another; without a workspace, adds up their sizes."""

    def __init__(self, workspace: Any | None, dtype: DType) -> None:
        self.workspace, self.dtype = workspace, dtype
        self.used = 0
        """Bytes of the arrays so far."""

    def take(self, *shape: int) -> Any:
        """The next array of this shape; None without a workspace."""
        size = prod(shape) * self.dtype.itemsize
        start, self.used = self.used, self.used + align_up(size)
        if self.workspace is None:
            return None
        elements = self.workspace[start : start + size].view(str(self.dtype))
        assert elements.size == prod(shape), "the workspace is smaller than what was asked for"
        return elements.reshape(shape)
