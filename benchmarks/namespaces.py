"""Two hosts on one machine: network namespaces, each with a name and an address of its own, joined by a cable."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netspec.distributed.launcher.mpi_discovery import find_mpiexec

ENTER = """\
#!/bin/sh
# Called as ssh is, with options, a host and a command: runs it in the namespace that is the host.
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in ADDRESS_0) host=HOST_0 ;; ADDRESS_1) host=HOST_1 ;; *) echo "no host $1" >&2; exit 1 ;; esac
shift
exec ip netns exec $host unshare --uts sh -c "hostname $host; $*"
"""
CARD = "net0"
OVER_THE_NETWORK = {"ucx": {"UCX_TLS": "tcp,self"}, "ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}}
"""MPICH's two ways to a network. It sees that the hosts are one machine, and would use its memory."""


class NoHostsError(Exception):
    """Why there can be none on this machine."""


def ip(*words: str) -> str:
    """What it says. Raises `CalledProcessError` where it is not allowed."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Hosts:
    """Two hosts, and what enters them."""

    names: list[str]
    addresses: list[str]
    script: Path
    mpiexec: str

    def command(self, program: Sequence[str], workers: Sequence[int] = (2, 2)) -> list[str]:
        """What runs a program as so many workers of each host, started from the first one."""
        listed = ",".join(f"{address}:{count}" for address, count in zip(self.addresses, workers, strict=True))
        enter = ["-launcher", "ssh", "-launcher-exec", str(self.script), "-hosts", listed]
        start = [self.mpiexec, *enter, "-localhost", self.addresses[0], "-n", str(sum(workers))]
        return ["ip", "netns", "exec", self.names[0], *start, *program]

    def slow_down(self, rate: str) -> None:
        """Let no more than so much, such as `300mbit`, leave a host."""
        for name in self.names:
            bucket = ["tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            ip("netns", "exec", name, "tc", "qdisc", "replace", "dev", CARD, "root", *bucket)


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Two hosts, for as long as the block runs; a script goes into the folder. Raises `NoHostsError`."""
    mpiexec = find_mpiexec()
    if mpiexec is None or mpiexec.kind != "hydra":
        raise NoHostsError("hydra, MPICH's mpiexec, is not installed: pip install 'netspec[mpi]'")
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        raise NoHostsError("network namespaces need root, iproute2 and util-linux")
    names = [f"ns{os.getpid()}{end}" for end in "ab"]
    found = Hosts(names, ["10.213.77.1", "10.213.77.2"], folder / "enter", mpiexec.path)
    text = ENTER
    for number, (name, address) in enumerate(zip(names, found.addresses, strict=True)):
        text = text.replace(f"ADDRESS_{number}", address).replace(f"HOST_{number}", name)
    found.script.write_text(text)
    found.script.chmod(0o755)
    try:
        _join(found)
    except subprocess.CalledProcessError as error:
        _remove(names)
        raise NoHostsError(f"this machine makes no network namespaces: {error.stderr.strip()}") from None
    try:
        yield found
    finally:
        _remove(names)


def _join(hosts: Hosts) -> None:
    first, second = hosts.names
    for name in hosts.names:
        ip("netns", "add", name)
    ip("link", "add", CARD, "netns", first, "type", "veth", "peer", "name", CARD, "netns", second)
    for name, address in zip(hosts.names, hosts.addresses, strict=True):
        ip("-n", name, "addr", "add", f"{address}/24", "dev", CARD)
        ip("-n", name, "link", "set", CARD, "up")
        ip("-n", name, "link", "set", "lo", "up")
    for name in hosts.names:  # the kernel tells of a link a moment later; MPI passes by what it does not tell of
        until = time.monotonic() + 5
        while " UP " not in ip("-n", name, "-br", "link", "show", CARD) and time.monotonic() < until:
            time.sleep(0.05)


def _remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
