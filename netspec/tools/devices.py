"""Report the devices that nets can run on here, and the libraries that run their kernels and start workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netspec.backends.device_registry import DEVICES, open_device
from netspec.backends.verification import DeviceCheck, Verification, store_result, stored, verify
from netspec.distributed import world
from netspec.distributed.communicators import nccl
from netspec.distributed.launcher.mpi_discovery import Mpiexec, describe_mpi
from netspec.errors import InputError
from netspec.tools.plain_data import PlainData


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
    verification: Verification | None
    """The stored result of checking the device; None if it was never checked."""

    def as_json(self) -> dict[str, Any]:
        """The device as plain data."""
        absent = {} if self.absent_reason is None else {"absent": self.absent_reason}
        return {
            "name": self.name, "kernels": list(self.kernels), "libraries": self.libraries,
            "unavailable": self.unavailable, **absent, "auto": self.is_default, "runs": self.runs,
            "verification": None if self.verification is None else self.verification.as_json(),
        }  # fmt: skip


@dataclass(frozen=True)
class MpiInfo(PlainData):
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
        reason = verification = None
        try:
            device = open_device(name)
            facts, verification = device.describe(), stored(device)
        except InputError as error:
            reason = error.summary
        kernels = tuple(facts["kernels"])
        infos.append(
            DeviceInfo(
                name, kernels, facts["libraries"], facts["unavailable"], reason, name == default, cls.runs, verification
            )
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


def verify_device(
    device: str = "auto", *, only: str = "", on_check: Callable[[DeviceCheck], object] = lambda check: None
) -> Verification:
    """Check the kernels of a device on samples against the reference, and small trainings against the CPU.

    The checks run in a process of their own, so that they may crash or hang. `only` selects checks whose names contain
    it; `on_check` is called with each result. The result of all checks is stored: from then on, failed kernels of a GPU
    are not used. Raises `InputError` if there is no such device, or if it only plans.

    >>> netspec.verify_device("cpu").passed
    """
    opened = open_device(device, first_use_check=False)
    if not opened.runs:
        raise InputError(f"the device `{opened.name}` only plans: it has no kernels to check", got=device)
    result = verify(opened.address, only=only, on_check=on_check)
    if not result.checks and result.problem is None:
        raise InputError(f"no check of `{opened.name}` has a name that contains {only!r}")
    if not only:
        store_result(opened, result)
    return result
