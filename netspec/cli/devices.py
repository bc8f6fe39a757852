"""`netspec devices`: the devices that nets can run on here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json
from netspec.cli.output import print_json, table

if TYPE_CHECKING:
    from netspec.tools.devices import DeviceReport, MpiInfo

app = command_app()

MPI_KINDS = {"hydra": "MPICH or Intel MPI", "openmpi": "Open MPI", "other": "an unknown MPI"}
"""The MPI that an `mpiexec` of each kind belongs to."""


@app.command(cls=Plain, epilog=examples("netspec devices", "netspec devices --json"))
def devices(as_json: Json = False) -> None:
    """List devices, their kernel libraries, and MPI.

    `--device` accepts these names; `auto` selects a GPU if netspec can use one, or else the CPU. For each kernel
    library, shows the software and its version, or why it cannot be used here. Also shows the MPI that `netspec train
    --workers` uses, and in an MPI job which worker runs on which host.
    """
    from netspec.distributed import world
    from netspec.tools.devices import devices as list_devices

    report = list_devices()
    if not world().is_first:
        return
    if as_json:
        print_json(report.as_json())
        return
    _print_devices(report)
    print()
    _print_mpi(report.mpi, report.nccl)


def _print_devices(report: DeviceReport) -> None:
    rows = [
        [
            device.name,
            ", ".join(device.kernels) or device.absent_reason or "",
            "auto" if device.is_default else "" if device.runs else "plans only",
        ]
        for device in report.devices
    ]
    table(["device", "kernels", ""], rows)
    if report.default_remark is not None:
        print(f"auto: {report.default_remark}")
    software: dict[str, str] = {}
    for device in report.devices:
        software |= {name: f"missing: {reason}" for name, reason in device.unavailable.items()}
    for device in report.devices:
        software |= device.libraries
    print()
    table(["kernels", "software"], [[name, text] for name, text in software.items()])


def _print_mpi(mpi: MpiInfo, nccl: str | None) -> None:
    from netspec.distributed.launcher.mpi_discovery import INSTALL

    mpiexec = mpi.mpiexec and f"{mpi.mpiexec.path} ({MPI_KINDS[mpi.mpiexec.kind]}) {mpi.mpiexec.version}".rstrip()
    rows = [
        [name, f"missing: {mpi.unavailable[name]}" if name in mpi.unavailable else version]
        for name, version in (("mpi4py", mpi.mpi4py), ("library", mpi.library), ("mpiexec", mpiexec))
    ]
    rows.append(["NCCL", nccl])
    if mpi.job is not None:
        hosts = mpi.job["hosts"]
        ranks = {host: [str(rank) for rank, host_of_rank in enumerate(hosts) if host_of_rank == host] for host in hosts}
        placed = "; ".join(f"{', '.join(numbers)} on {host}" for host, numbers in ranks.items())
        rows.append(["this job", f"{mpi.job['workers']} workers: ranks {placed}"])
    table(["MPI", "for several workers"], [[name, text] for name, text in rows if name and text])
    if mpi.unavailable:
        print(f"to train on several workers: {INSTALL}")
