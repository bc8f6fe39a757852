"""Autotuning: where several kernels can serve a node, they race, and the winner is remembered.

Ranks say which kernel is usually fastest; on a given machine, for a given shape, another one may be. A race runs each
kernel on made-up operands, in rounds, and takes the fastest time of each. Winners are kept on disk under all that they
depend on (processor and threads, or GPU and driver; libraries, op, types), so that a machine chooses the same kernels
ever after: results are bitwise the same as long as that file stays.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from functools import cache, cached_property
from hashlib import sha256
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

from netspec.backends.calls import Calls
from netspec.backends.store import cache_store
from netspec.graph.kernel import Buffers, Offer, Thunk
from netspec.graph.layout import Layout, Signature
from netspec.graph.plan import aligned
from netspec.graph.types import TensorType
from netspec.graph.value import Node

if TYPE_CHECKING:
    from netspec.backends.base import Device

QUICK_BUDGET = 2.0
"""Seconds that `quick` spends in all; nodes whose turn comes later keep the usual kernel."""
ROUNDS = 5
ROUND_SECONDS = {"quick": 0.002, "full": 0.02}
"""How long each kernel runs in a round, one call at least."""


class Tuner:
    """Measures kernels of a device by racing them, or knows what earlier races have found."""

    def __init__(self, device: Device, level: str) -> None:
        """`level` is `quick` or `full`."""
        self.device, self.level = device, level
        self._left = QUICK_BUDGET if level == "quick" else float("inf")
        self._store = cache_store("tuning")

    @cached_property
    def _file(self) -> str:
        """The winners of this machine: with other libraries, threads or another device they would be others."""
        key = [*self.device.identity(), platform.machine(), version("netspec"), sorted(self.device.about().items())]
        return f"{sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"

    @cached_property
    def _found(self) -> dict[str, dict[str, float]]:
        """Seconds of each offer, by node."""
        content = self._store.read(self._file)
        return json.loads(content) if content is not None else {}

    def measured(self, node: Node, offers: Sequence[Offer]) -> Sequence[float] | None:
        """Seconds of each offer in a race, of now or of before; None where there was none, and is no time for it."""
        key, names = _key(node), [_name(one) for one in offers]
        times = self._found.get(key, {})
        if not times.keys() >= set(names):
            if not self.device.runs or self._left <= 0:
                return None
            times = self._found[key] = {**times, **dict(zip(names, self._race(node, offers), strict=True))}
            self._keep()
        return [times[name] for name in names]

    def _race(self, node: Node, offers: Sequence[Offer]) -> list[float]:
        began = perf_counter()
        times = [float("inf")] * len(offers)
        with self.device.running():
            arrays = cache(lambda lying: _Arrays(self.device, node, lying))  # ways that read and write alike share them
            runners = [_Runner(self.device, node, one, arrays(one.layouts)) for one in offers]
            for _ in range(ROUNDS):
                for index, runner in enumerate(runners):
                    times[index] = min(times[index], runner.seconds(ROUND_SECONDS[self.level]))
        self._left -= perf_counter() - began
        return times

    def _keep(self) -> None:
        """Write what was found, beside what other processes have found meanwhile."""
        content = self._store.read(self._file)
        others = json.loads(content) if content is not None else {}
        self._store.write(self._file, json.dumps({**others, **self._found}, sort_keys=True).encode())


class _Arrays:
    """Made-up operands, and results."""

    def __init__(self, device: Device, node: Node, lying: Signature) -> None:
        self.inputs = [_array(device, one.type, layout) for one, layout in zip(node.inputs, lying.inputs, strict=True)]
        for value, array in zip(node.inputs, self.inputs, strict=True):
            device.upload(array, _numbers(value.type.with_shape(*array.shape)))
        self.outputs = [_array(device, kind, layout) for kind, layout in zip(node.types, lying.outputs, strict=True)]


class _Runner:
    """An offer bound to arrays."""

    def __init__(self, device: Device, node: Node, offer: Offer, arrays: _Arrays) -> None:
        self._device = device
        kernel, lying = offer.kernel, offer.layouts
        size = kernel.workspace(node, lying)
        workspace = device.allocate(aligned(size)) if size else None
        calls = Calls(device.set_threads, device.threads())
        bound = kernel.bind(node, Buffers(tuple(arrays.inputs), tuple(arrays.outputs), lying, workspace))
        calls.add(bound, node, kernel.threads(node))
        self._thunk: Thunk = calls.run
        self._kept = arrays, workspace
        self._thunk()

    def seconds(self, least: float) -> float:
        """Mean time of a call, over as many calls as fill `least` seconds."""
        return self._device.timed(self._thunk, least)


def _array(device: Device, kind: TensorType, layout: Layout) -> Any:
    return device.view(device.allocate(aligned(layout.nbytes(kind))), 0, kind, layout)


def _numbers(kind: TensorType) -> Any:
    """Made-up operands: numbers around 1, so that nothing overflows or turns denormal; zeros for indices."""
    import numpy as np

    if not kind.dtype.is_float:
        return np.zeros(kind.shape, str(kind.dtype))
    return np.linspace(0.5, 1.5, kind.size, dtype=np.float32).reshape(kind.shape)


def _key(node: Node) -> str:
    """The node as text: its op with all attributes, and the types of its operands."""
    return f"{node.op!r} of {', '.join(str(value.type) for value in node.inputs)}"


def _name(offer: Offer) -> str:
    """The offer as text: its kernel, and how it reads and writes."""
    lying = (", ".join(map(str, layouts)) for layouts in (offer.layouts.inputs, offer.layouts.outputs))
    return f"{offer.kernel.label} {' -> '.join(lying)}"
