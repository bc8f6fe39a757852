"""Two hosts on one machine: network namespaces, each with its own name and address, joined by a link."""

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
"""MPICH's two network transports. It would otherwise detect that the hosts are one machine and use shared memory."""


class NoHostsError(Exception):
    """The machine cannot create the hosts; the message is the reason."""


def ip(*words: str) -> str:
    """Run `ip` and return its output. Raises `CalledProcessError` if it is not permitted."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Hosts:
    """Two hosts, and the script that enters them."""

    names: list[str]
    addresses: list[str]
    script: Path
    mpiexec: str

    def command(self, program: Sequence[str], workers: Sequence[int] = (2, 2)) -> list[str]:
        """Return the command that runs a program with these numbers of workers per host, started on the first host."""
        listed = ",".join(f"{address}:{count}" for address, count in zip(self.addresses, workers, strict=True))
        enter = ["-launcher", "ssh", "-launcher-exec", str(self.script), "-hosts", listed]
        start = [self.mpiexec, *enter, "-localhost", self.addresses[0], "-n", str(sum(workers))]
        return ["ip", "netns", "exec", self.names[0], *start, *program]

    def slow_down(self, rate: str) -> None:
        """Limit the rate at which data leaves a host, such as `300mbit`."""
        for name in self.names:
            bucket = ["tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            ip("netns", "exec", name, "tc", "qdisc", "replace", "dev", CARD, "root", *bucket)


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Create two hosts while the block runs; a script is written to the folder. Raises `NoHostsError`."""
    mpiexec = find_mpiexec()
    if mpiexec is None or mpiexec.kind != "hydra":
        raise NoHostsError("hydra, MPICH's mpiexec, is not installed: pip install -e '.[mpi]'")
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        raise NoHostsError("network namespaces need root, iproute2 and util-linux")
    names = [f"ns{os.getpid()}{end}" for end in "ab"]
    hosts = Hosts(names, ["10.213.77.1", "10.213.77.2"], folder / "enter", mpiexec.path)
    text = ENTER
    for number, (name, address) in enumerate(zip(names, hosts.addresses, strict=True)):
        text = text.replace(f"ADDRESS_{number}", address).replace(f"HOST_{number}", name)
    hosts.script.write_text(text)
    hosts.script.chmod(0o755)
    try:
        _join(hosts)
    except subprocess.CalledProcessError as error:
        _remove(names)
        raise NoHostsError(f"this machine cannot create network namespaces: {error.stderr.strip()}") from None
    try:
        yield hosts
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
    for name in hosts.names:  # the kernel reports a link with a delay, and MPI skips links that are not reported
        until = time.monotonic() + 5
        while " UP " not in ip("-n", name, "-br", "link", "show", CARD) and time.monotonic() < until:
            time.sleep(0.05)


def _remove(names: list[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
