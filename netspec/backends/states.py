"""`States`: arrays that outlive a step (parameters, statistics, solver slots), shared by all programs of a net."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from netspec.backends.device import Device
from netspec.graph.execution_plan import align_up
from netspec.graph.types import TensorType


class States(Mapping[str, Any]):
    """Named arrays in one block of device memory. Read as NumPy copies; written by `assign` and by programs."""

    def __init__(self, types: Mapping[str, TensorType], device: Device, shared: Collection[str] = ()) -> None:
        """States in `shared` are in a block that all workers of the host share, in the same order."""
        self.device = device
        self.version = 0
        """Incremented when states are written: values computed from earlier states may be out of date."""
        self.types = dict(types)
        offsets: dict[str, int] = {}
        sizes = {False: 0, True: 0}
        for name, kind in types.items():
            offsets[name] = sizes[name in shared]
            sizes[name in shared] += align_up(kind.nbytes)
        self.nbytes = sum(sizes.values())
        memory = {False: device.allocate(sizes[False]), True: device.share(sizes[True]) if shared else None}
        self._arrays = {name: device.view(memory[name in shared], offsets[name], kind) for name, kind in types.items()}
        self._constants: dict[str, Any] = {}

    def add_constants(self, types: Mapping[str, TensorType], values: Mapping[str, float]) -> None:
        """Add scalars that programs read and never write. They are not listed with the states."""
        for name, kind in types.items():
            self._constants[name] = self.device.view(self.device.allocate(align_up(kind.nbytes)), 0, kind)
            self.device.upload(self._constants[name], values[name])

    def array(self, name: str) -> Any:
        """The device array itself."""
        return self._arrays[name] if name in self._arrays else self._constants[name]

    def assign(self, name: str, host: Any) -> None:
        """Write a NumPy array. Raises `ValueError` for another shape."""
        self.version += 1
        self.device.upload(self._arrays[name], host)

    def __getitem__(self, name: str) -> Any:
        return self.device.fetch(self._arrays[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
