"""The measurement of the machine's peak rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from netspec.backends.device_registry import CpuDevice
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType
from netspec.tools.measuring.roofline import _copy


class OfAStream(CpuDevice):
    """A device that only waits for one stream, which runs what is called inside of `running`."""

    inside, copied = False, 0

    @contextmanager
    def running(self) -> Iterator[None]:
        self.inside = True
        yield
        self.inside = False

    def copier(self, target: Any, source: Any) -> Thunk:
        def run() -> None:
            assert self.inside, "nobody would wait for it"
            self.copied += 1

        return run


def test_a_copy_is_measured_on_the_stream_that_is_waited_for() -> None:
    device = OfAStream()
    _copy(device, DType.FLOAT32, 4096)()
    assert device.copied == 1
