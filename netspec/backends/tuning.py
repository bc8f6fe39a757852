"""Autotuning: if several kernels accept a node, they are measured, and the fastest is remembered.

Ranks say which kernel is usually fastest; on a given machine and for a given shape, another one may be faster. A
measurement runs each kernel on synthetic operands, in rounds, and takes the fastest time of each. Winners are stored on
disk, with everything that they depend on as the key (CPU and threads, or GPU and driver; libraries, op, types). A
machine therefore chooses the same kernels again, and results are bit-identical as long as the file exists.
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

import numpy as np

from netspec.backends.backend import COMMUNICATION
from netspec.backends.disk_cache import open_cache
from netspec.backends.executor import CallSequence
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, KernelOption, Thunk
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.types import TensorType
from netspec.graph.value import Node

if TYPE_CHECKING:
    from netspec.backends.device import Device

QUICK_BUDGET = 2.0
"""Seconds that `quick` spends in total; later nodes keep the kernel with the highest rank."""
ROUNDS = 5
ROUND_SECONDS = {"quick": 0.002, "full": 0.02}
"""Duration of a round for each kernel, which is at least one call."""


class Tuner:
    """Measures the kernels of a device, or looks up earlier measurements."""

    def __init__(self, device: Device, level: str) -> None:
        """`level` is `quick` or `full`."""
        self.device, self.level = device, level
        self._left = QUICK_BUDGET if level == "quick" else float("inf")
        self._store = open_cache("tuning")

    @cached_property
    def _file(self) -> str:
        """The file of this machine's winners; other libraries, thread counts or devices use other files."""
        libraries = {name: text for name, text in self.device.descriptions().items() if name not in COMMUNICATION}
        key = [*self.device.identity(), platform.machine(), version("netspec"), sorted(libraries.items())]
        return f"{sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"

    @cached_property
    def _measured(self) -> dict[str, dict[str, float]]:
        """Seconds of each option, by node."""
        content = self._store.read(self._file)
        return json.loads(content) if content is not None else {}

    def measured_seconds(self, node: Node, offers: Sequence[KernelOption]) -> Sequence[float] | None:
        """Seconds of each option, measured now or earlier; None if there is no measurement and no time for one."""
        key, names = _key(node), [_name(offer) for offer in offers]
        times = self._measured.get(key, {})
        if not times.keys() >= set(names):
            if not self.device.runs or self._left <= 0:
                return None
            times = self._measured[key] = {**times, **dict(zip(names, self._race(node, offers), strict=True))}
            self._keep()
        return [times[name] for name in names]

    def _race(self, node: Node, offers: Sequence[KernelOption]) -> list[float]:
        began = perf_counter()
        times = [float("inf")] * len(offers)
        with self.device.running():
            arrays = cache(
                lambda signature: _Arrays(self.device, node, signature)
            )  # options with the same layouts share them
            runners = [_Runner(self.device, node, offer, arrays(offer.layouts)) for offer in offers]
            for _ in range(ROUNDS):
                for index, runner in enumerate(runners):
                    times[index] = min(times[index], runner.seconds(ROUND_SECONDS[self.level]))
        self._left -= perf_counter() - began
        return times

    def _keep(self) -> None:
        """Save the measurements, merged with those that other processes have saved meanwhile."""
        content = self._store.read(self._file)
        others = json.loads(content) if content is not None else {}
        self._store.write(self._file, json.dumps({**others, **self._measured}, sort_keys=True).encode())


class _Arrays:
    """Synthetic operands, and results."""

    def __init__(self, device: Device, node: Node, signature: LayoutSignature) -> None:
        self.inputs = [
            _array(device, value.type, layout) for value, layout in zip(node.inputs, signature.inputs, strict=True)
        ]
        for value, array in zip(node.inputs, self.inputs, strict=True):
            device.upload(array, _numbers(value.type.with_shape(*array.shape)))
        self.outputs = [
            _array(device, kind, layout) for kind, layout in zip(node.types, signature.outputs, strict=True)
        ]


class _Runner:
    """An option bound to arrays."""

    def __init__(self, device: Device, node: Node, offer: KernelOption, arrays: _Arrays) -> None:
        self._device = device
        kernel, signature = offer.kernel, offer.layouts
        size = kernel.workspace(node, signature)
        workspace = device.allocate(align_up(size)) if size else None
        calls = CallSequence(device.set_threads, device.threads())
        bound = kernel.bind(node, Buffers(tuple(arrays.inputs), tuple(arrays.outputs), signature, workspace))
        calls.add(bound, node, kernel.threads(node))
        self._thunk: Thunk = calls.run
        self._kept = arrays, workspace
        self._thunk()

    def seconds(self, least: float) -> float:
        """Mean time of a call, over as many calls as fill `least` seconds."""
        return self._device.timed(self._thunk, least)


def _array(device: Device, kind: TensorType, layout: Layout) -> Any:
    return device.view(device.allocate(align_up(layout.nbytes(kind))), 0, kind, layout)


def _numbers(kind: TensorType) -> Any:
    """Synthetic operand: values near 1, so that nothing overflows or becomes denormal; zeros for indices."""
    if not kind.dtype.is_float:
        return np.zeros(kind.shape, str(kind.dtype))
    return np.linspace(0.5, 1.5, kind.size, dtype=np.float32).reshape(kind.shape)


def _key(node: Node) -> str:
    """The node as text: its op with all attributes, and the types of its operands."""
    return f"{node.op!r} of {', '.join(str(value.type) for value in node.inputs)}"


def _name(offer: KernelOption) -> str:
    """The option as text: its kernel and layouts."""
    signature = (", ".join(map(str, layouts)) for layouts in (offer.layouts.inputs, offer.layouts.outputs))
    return f"{offer.kernel.label} {' -> '.join(signature)}"
