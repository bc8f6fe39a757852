"""Where arrays lie: values that are worked on in place are copied where they lie elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.workers.spans import address
from netspec.graph.kernel import Thunk


def filling(inputs: Sequence[Any], outputs: Sequence[Any]) -> Thunk:
    """What copies operands to where their results lie; nothing to do where they lie there already."""
    apart = [
        (target, source)
        for source, target in zip(inputs, outputs, strict=True)
        if target is not None and address(target) != address(source)
    ]

    def run() -> None:
        for target, source in apart:
            target[...] = source

    return run
