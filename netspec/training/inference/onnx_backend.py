"""`OnnxBackend`: netspec as a backend for ONNX's test suite, `BackendTest(netspec.OnnxBackend, __name__)`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from netspec.backends.device_registry import open_device
from netspec.errors import InputError
from netspec.exchange.formats.onnx.backend import ImportingBackend, Run
from netspec.exchange.interface import Imported
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.training.inference.model import load

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def _is_available(device: str) -> bool:
    """Return whether a device can be opened. ONNX's runner asks twice for each of its 4,000 cases."""
    try:
        open_device(device)
    except InputError:
        return False
    return True


class OnnxBackend(ImportingBackend):
    """Runs ONNX models: imports them like `netspec import`, compiles them, and runs them with netspec's kernels."""

    devices: ClassVar[Mapping[str, str]] = {"CPU": "cpu", "CUDA": "cuda"}
    """Devices of netspec by the names of ONNX."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is available: `CPU`, or `CUDA` (the first GPU, `CUDA:0`)."""
        name, _, number = device.partition(":")
        return number in ("", "0") and _is_available(cls.devices.get(name, name))

    @classmethod
    def compiled(cls, net: Imported, device: str) -> Run:
        """Compile the net for a device. Raises `InputError`."""
        spec = load_net(parse_yaml(net.net, "the imported net"))
        model = load(spec, device=cls.devices[device.partition(":")[0]])
        for name, array in net.arrays.items():
            model.parameters[name] = array

        def run(inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
            return model.predict(inputs, batch_size=max(map(len, inputs.values())))

        return run
