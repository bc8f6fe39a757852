"""`netspec devices`: the devices that nets can run on here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json
from netspec.cli.output import count, print_json, table
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.backends.verification import DeviceCheck, Verification
    from netspec.tools.devices import DeviceReport, MpiInfo

app = CommandApp()

MPI_KINDS = {"hydra": "MPICH or Intel MPI", "openmpi": "Open MPI", "other": "an unknown MPI"}
"""The MPI that an `mpiexec` of each kind belongs to."""


@app.add_command("netspec devices", "netspec devices --verify", "netspec devices --verify --device cpu --only Conv")
def devices(
    verify: Annotated[bool, typer.Option("--verify", help="Check a device: its kernels and training.")] = False,
    device: Device = "auto",
    only: Annotated[str, typer.Option("--only", metavar="TEXT", help="Run the checks with TEXT in their names.")] = "",
    as_json: Json = False,
) -> int:
    """List devices, kernel libraries and MPI; check a device.

    `--device` of other commands accepts the names of devices that can be used here; `auto` selects a GPU if netspec can
    use one, or else the CPU. For each kernel library, shows the software and its version, or why it cannot be used
    here. Also shows the MPI that `netspec train --workers` uses, and in an MPI job which worker runs on which host.

    `--verify` runs every kernel of a device on samples, compares the results with the reference, and trains small nets
    in each precision. It prints what failed, and exits with status 1 if anything did.
    """
    from netspec.backends.notices import device_notices

    device_notices.set_listener(None)  # the list has the notes
    if verify:
        return _verify(device, only, as_json=as_json)
    if device != "auto" or only:
        raise InputError("--device and --only select what `--verify` checks", hint="add `--verify`")
    _list(as_json=as_json)
    return DONE


def _verify(device: str, only: str, *, as_json: bool) -> int:
    from netspec.tools.devices import verify_device

    with checks_progress() as on_check:
        result = verify_device(device, only=only, on_check=on_check)
    if as_json:
        print_json(result.as_json())
    else:
        _print_verification(result)
    return DONE if result.passed else FAILED


@contextmanager
def checks_progress() -> Iterator[Callable[[DeviceCheck], None]]:
    """Show the last finished check on a terminal."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status("starting") as status:
        yield lambda check: status.update(f"{check.name} {check.status}")


def _print_verification(result: Verification) -> None:
    groups: dict[str, list[DeviceCheck]] = {}
    for check in result.checks:
        group = f"kernels of {check.name.partition(':')[0]}" if check.kind == "kernel" else "training runs"
        groups.setdefault(group, []).append(check)
    statuses = ("passed", "failed", "skipped")
    rows = [
        [name, *(count(sum(check.status == status for check in checks)) for status in statuses)]
        for name, checks in groups.items()
    ]
    table([f"checks of {result.device}", *statuses], rows, right=(1, 2, 3))
    for check in result.checks:
        if check.status != "passed":
            print(f"{check.status}: {check.name}: {check.reason}")
    print(result.summary())


def _list(*, as_json: bool) -> None:
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
    for device in report.devices:
        if (result := device.verification) is not None:
            form = "short check" if result.quick else "check"
            print(f"{form} of {result.device}: {result.summary()}")
    software: dict[str, str] = {}
    for device in report.devices:
        software |= {name: f"missing: {reason}" for name, reason in device.unavailable.items()}
    for device in report.devices:
        software |= device.libraries
    print()
    table(["kernels", "software"], [[name, text] for name, text in software.items()])


def _print_mpi(mpi: MpiInfo, nccl: str | None) -> None:
    from netspec.distributed.launcher.mpi_discovery import how_to_install

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
        print(f"to train on several workers: {how_to_install()}")
