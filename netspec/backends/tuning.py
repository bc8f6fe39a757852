"""Autotuning: where several kernels can serve a node, they race, and the winner is remembered.

Ranks say which kernel is usually fastest; on a given machine, for a given shape, another one may be. A race runs each
kernel on made-up operands, in rounds, and takes the fastest time of each. Winners are kept on disk under all that they
depend on (processor, threads, libraries, op, types), so that a machine chooses the same kernels ever after: results are
bitwise the same as long as that file stays.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from netspec.backends.calls import Calls
from netspec.backends.openmp import thread_count
from netspec.backends.store import cache_store
from netspec.graph.kernel import Buffers, Choice, Kernel, Thunk, accepting, choose
from netspec.graph.layout import PLAIN, Layout, Signature
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
MARGIN = 0.95
"""A kernel must take at most this share of the usual one's time: less is noise."""
COPY_RATE = 1e10
"""Bytes a second; what a kernel wants to lie otherwise than channels-last must be copied first."""


class Tuner:
    """Chooses kernels for a device by racing them, or by what earlier races have found."""

    def __init__(self, device: Device, level: str) -> None:
        """`level` is `quick` or `full`."""
        self.device, self.level = device, level
        self._left = QUICK_BUDGET if level == "quick" else float("inf")
        self._store = cache_store("tuning")

    @cached_property
    def _file(self) -> str:
        """The winners of this machine: with other libraries, threads or another processor they would be others."""
        about = self.device.describe()["about"]
        cores = os.cpu_count(), thread_count()
        key = [processor(), platform.machine(), *cores, version("netspec"), sorted(about.items())]
        return f"{sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"

    @cached_property
    def _found(self) -> dict[str, dict[str, float]]:
        """Seconds of each kernel, by node."""
        content = self._store.read(self._file)
        return json.loads(content) if content is not None else {}

    def choose(self, node: Node) -> Choice:
        """The kernel for a node: the winner of its race, or the usual one where there is no race."""
        usual = choose(node, self.device.kernels)
        kernels = {one.label: one for one in accepting(node, self.device.kernels) if one.rank > 0}
        if len(kernels) < 2:
            return usual
        key = _key(node)
        times = self._found.get(key)
        if times is None or times.keys() != kernels.keys():
            if not self.device.runs or self._left <= 0:
                return usual
            times = self._found[key] = self._race(node, kernels)
            self._keep()
        return _decided(usual, kernels, times)

    def _race(self, node: Node, kernels: Mapping[str, Kernel]) -> dict[str, float]:
        began = perf_counter()
        runs = {label: _Runner(self.device, node, kernel) for label, kernel in kernels.items()}
        times = dict.fromkeys(runs, float("inf"))
        with self.device.running():
            for _ in range(ROUNDS):
                for label, runner in runs.items():
                    times[label] = min(times[label], runner.seconds(ROUND_SECONDS[self.level]))
        self._left -= perf_counter() - began
        return {label: time + runs[label].copies for label, time in times.items()}

    def _keep(self) -> None:
        """Write what was found, beside what other processes have found meanwhile."""
        content = self._store.read(self._file)
        others = json.loads(content) if content is not None else {}
        self._store.write(self._file, json.dumps({**others, **self._found}, sort_keys=True).encode())


def _decided(usual: Choice, kernels: Mapping[str, Kernel], times: Mapping[str, float]) -> Choice:
    fastest = min(times, key=lambda label: (times[label], label))
    if times[fastest] > MARGIN * times[usual.label]:
        fastest = usual.label
    lost = [(label, f"lost the race: {time * 1e6:,.1f} µs") for label, time in times.items() if label != fastest]
    declined = [one for one in usual.declined if one[0] not in times]
    return replace(usual, kernel=kernels[fastest], declined=(*declined, *lost), seconds=times[fastest])


class _Runner:
    """A kernel bound to made-up operands."""

    def __init__(self, device: Device, node: Node, kernel: Kernel) -> None:
        given = [_usual_layout(value.type) for value in node.inputs]
        lying = _signature(node, kernel, given)
        inputs = [_array(device, value.type, layout) for value, layout in zip(node.inputs, lying.inputs, strict=True)]
        for value, array in zip(node.inputs, inputs, strict=True):
            device.upload(array, _numbers(value.type.with_shape(*array.shape)))
        outputs = [_array(device, kind, layout) for kind, layout in zip(node.types, lying.outputs, strict=True)]
        size = kernel.workspace(node, lying)
        workspace = device.allocate(aligned(size)) if size else None
        calls = Calls(device.set_threads, device.threads())
        bound = kernel.bind(node, Buffers(tuple(inputs), tuple(outputs), lying, workspace))
        calls.add(bound, node, kernel.threads(node))
        self._thunk: Thunk = calls.run
        self._kept = inputs, outputs, workspace
        moved = [
            kind.nbytes
            for kind, layout in [
                *((value.type, layout) for value, layout in zip(node.inputs, lying.inputs, strict=True)),
                *zip(node.types, lying.outputs, strict=True),
            ]
            if layout != _usual_layout(kind) and not (layout.is_plain(kind) and _usual_layout(kind).is_plain(kind))
        ]
        self.copies = 2 * sum(moved) / COPY_RATE
        """Seconds for the copies that the kernel makes necessary."""
        self._thunk()

    def seconds(self, least: float) -> float:
        """Mean time of a call, over as many calls as fill `least` seconds."""
        thunk, calls, start = self._thunk, 0, perf_counter()
        while True:
            thunk()
            calls += 1
            passed = perf_counter() - start
            if passed >= least:
                return passed / calls


def _usual_layout(kind: TensorType) -> Layout:
    """How an operand lies in most nets: images channels-last."""
    return Layout.channels_last(kind.rank) if kind.rank > 3 else PLAIN


def _signature(node: Node, kernel: Kernel, given: Sequence[Layout]) -> Signature:
    if not node.op.traits.elementwise:
        return kernel.layouts(node, given)
    shape = node.types[0].shape
    own = tuple(layout if value.shape == shape else PLAIN for value, layout in zip(node.inputs, given, strict=True))
    return Signature(own, (_usual_layout(node.types[0]),) * len(node.types))


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


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "flags"))]
    return " ".join(dict.fromkeys(names))
