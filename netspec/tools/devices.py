"""Report the devices that nets can run on here, and the libraries that run their kernels and start workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from netspec.backends.device_registry import DEVICES, open_device
from netspec.distributed import world
from netspec.distributed.communicators import nccl
from netspec.distributed.launcher.mpi_discovery import Mpiexec, describe_mpi
from netspec.errors import InputError


@dataclass(frozen=True)
class DeviceInfo:
    """A device that a spec or `device=` can name."""

    name: str
    kernels: tuple[str, ...]
    """Kernel libraries of the device, the preferred one first; empty if the device is absent."""
    libraries: dict[str, str]
    """Software with versions that runs each kernel library, by library."""
    unavailable: dict[str, str]
    """Reason why a kernel library cannot be used, by library."""
    absent_reason: str | None
    """Reason why the device is not on this machine; None if it is."""
    is_default: bool
    """Whether `auto` selects it."""
    runs: bool
    """Whether it computes; otherwise nets can only be planned for it."""

    def as_json(self) -> dict[str, Any]:
        """The device as plain data."""
        absent = {} if self.absent_reason is None else {"absent": self.absent_reason}
        return {
            "name": self.name, "kernels": list(self.kernels), "libraries": self.libraries,
            "unavailable": self.unavailable, **absent, "auto": self.is_default, "runs": self.runs,
        }  # fmt: skip


@dataclass(frozen=True)
class MpiInfo:
    """The MPI that starts and connects workers."""

    mpi4py: str | None
    """Version of mpi4py."""
    library: str | None
    """Name and version of the MPI library that mpi4py loads."""
    mpiexec: Mpiexec | None
    """The program that starts processes."""
    unavailable: dict[str, str]
    """Reasons why `mpi4py` or `mpiexec` cannot be used, by these names; empty if several workers can be started."""
    job: dict[str, Any] | None
    """Workers and hosts of the job that this process belongs to, if it has several."""

    def as_json(self) -> dict[str, Any]:
        """MPI's facts as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class DeviceReport:
    """Devices and launchers of this machine."""

    devices: tuple[DeviceInfo, ...]
    default_remark: str | None
    """Reason why `auto` selects its device, if that needs an explanation."""
    mpi: MpiInfo
    nccl: str | None
    """Version of NCCL, and what loads it; None if it is not installed."""

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        devices = [device.as_json() for device in self.devices]
        return {"devices": devices, "mpi": self.mpi.as_json(), "nccl": self.nccl, "remark": self.default_remark}


def devices() -> DeviceReport:
    """List the devices that nets can run on here, their kernel libraries, and the MPI that starts several workers.

    >>> [device.name for device in netspec.devices().devices if device.is_default]
    """
    default: str | None = None
    try:
        opened = open_device("auto")
        default, remark = opened.name, opened.remark
    except InputError as error:  # there is a GPU, and something about it is broken
        remark = error.summary
    infos = []
    for name, cls in DEVICES.items():
        facts: dict[str, Any] = {"kernels": (), "libraries": {}, "unavailable": {}}
        reason = None
        try:
            facts = open_device(name).describe()
        except InputError as error:
            reason = error.summary
        kernels = tuple(facts["kernels"])
        infos.append(
            DeviceInfo(name, kernels, facts["libraries"], facts["unavailable"], reason, name == default, cls.runs)
        )
    mpi = describe_mpi()
    mpiexec = None if mpi["mpiexec"] is None else Mpiexec(**mpi["mpiexec"])
    job = world().describe() if world().size > 1 else None
    return DeviceReport(
        tuple(infos),
        remark,
        MpiInfo(mpi["mpi4py"], mpi["library"], mpiexec, mpi["unavailable"], job),
        nccl.installed_version(),
    )
