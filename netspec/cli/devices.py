"""`netspec devices`: what a net can run on here."""

from __future__ import annotations

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json
from netspec.cli.output import print_json, table
from netspec.distributed import world
from netspec.errors import InputError

app = command_app()

WHOSE = {"hydra": "MPICH's or Intel's", "openmpi": "Open MPI's", "other": "an MPI's that is not known"}
"""Whose an `mpiexec` is, by its kind."""


@app.command(cls=Plain, epilog=examples("netspec devices", "netspec devices --json"))
def devices(as_json: Json = False) -> None:
    """List devices that nets can run on, and their kernels.

    The devices' names are what `--device` takes; `auto` is a GPU where one can be used, else the processor. Of each
    kind of kernels it says which library of which version it runs on, or why it cannot be used here; and with what
    several workers are started, for `netspec train --workers`. In a job of MPI it also says which worker is on which
    host.
    """
    from netspec.backends.device_registry import DEVICES, open_device
    from netspec.distributed.communicators import nccl
    from netspec.distributed.launcher.mpi_discovery import INSTALL, describe_mpi

    try:
        auto = open_device("auto")
        chosen, why = auto.name, auto.remark
    except InputError as error:  # there is a GPU, and something about it is broken
        chosen, why = None, error.summary
    found = []
    for name, cls in DEVICES.items():
        try:
            facts = open_device(name).describe()
        except InputError as error:  # not on this machine
            facts = {"name": name, "kernels": [], "about": {}, "missing": {}, "absent": error.summary}
        found.append({**facts, "auto": name == chosen, "runs": cls.runs})
    job = world().describe() if world().size > 1 else None
    mpi = {**describe_mpi(), "job": job}
    if not world().is_first:
        return
    if as_json:
        print_json({"devices": found, "mpi": mpi, "nccl": nccl.installed(), "remark": why})
        return
    rows = [
        [
            one["name"],
            ", ".join(one["kernels"]) or one["absent"],
            "auto" if one["auto"] else "" if one["runs"] else "plans only",
        ]
        for one in found
    ]
    table(["device", "kernels", ""], rows)
    if why is not None:
        print(f"auto: {why}")
    about = {name: text for one in found for name, text in one["about"].items()}
    missing = {name: f"missing: {reason}" for one in found for name, reason in one["missing"].items()}
    print()
    table(["kernels", "what runs them"], [[name, text] for name, text in {**missing, **about}.items()])
    started = mpi["mpiexec"] or {}
    by = {
        "mpi4py": mpi["mpi4py"],
        "library": mpi["library"],
        "mpiexec": " ".join(f"{started.get('path')} ({WHOSE[started['kind']]}) {started['version']}".split())
        if started
        else None,
    }
    rows = [[name, f"missing: {mpi['missing'][name]}" if name in mpi["missing"] else text] for name, text in by.items()]
    rows.append(["NCCL", nccl.installed()])
    if job is not None:
        ranks = {host: [str(rank) for rank, one in enumerate(job["hosts"]) if one == host] for host in job["hosts"]}
        told = "; ".join(f"{', '.join(numbers)} on {host}" for host, numbers in ranks.items())
        rows.append(["this job", f"{job['workers']} workers: ranks {told}"])
    print()
    table(["MPI", "for several workers"], [row for row in rows if row[1]])
    if mpi["missing"]:
        print(f"to train on several workers: {INSTALL}")
