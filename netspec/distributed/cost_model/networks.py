"""Networks in the α–β model: a message of n bytes takes α + n β seconds (Hockney 1994, Parallel Computing 20, 389)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from netspec.errors import InputError, did_you_mean, listing

NCCL = 5.7e-6
"""Latency of NCCL between GPUs of a host, in seconds."""


@dataclass(frozen=True)
class Network:
    """A connection on which a message between two ranks takes `alpha + bytes * beta` seconds."""

    name: str
    alpha: float
    """Latency in seconds, including software."""
    beta: float
    """Seconds per byte, in one direction while the other is used too."""
    source: str
    """Source of the two values."""

    def seconds(self, nbytes: float, flows: float = 1.0) -> float:
        """Return the time of one message while `flows` messages share the link."""
        return self.alpha + nbytes * flows * self.beta

    def describe(self) -> str:
        """Return name, latency and rate as text."""
        return f"{self.name}: α {self.alpha * 1e6:g} µs, {1e-9 / self.beta:.3g} GB/s"


def _infiniband(name: str, gigabits: float, signalled: str) -> Network:
    """Return 4x InfiniBand: 4096 bytes of a packet's 4122 are payload (IBTA: LRH 8, BTH 12, ICRC 4, VCRC 2)."""
    return Network(
        name,
        1e-6,
        8 * (4122 / 4096) / (gigabits * 1e9),
        f"{signalled}, 4096 of 4122 bytes payload; α: 0.9 to 1.2 µs by osu_latency (Open MPI, MPICH with UCX)",
    )


def _ethernet(name: str, gigabits: float) -> Network:
    """Return TCP over Ethernet: 1448 bytes of every 1538 on the wire are payload (MTU 1500, IEEE 802.3)."""
    return Network(
        name,
        25e-6,
        8 * (1538 / 1448) / (gigabits * 1e9),
        f"{gigabits:g} Gbit/s, 1448 of 1538 bytes payload; α: 25 µs by osu_latency (MPICH, kernel TCP)",
    )


def _nvlink(name: str, gigabytes: float, generation: str) -> Network:
    """Return NVLink with the vendor's rate, which counts both directions."""
    return Network(
        name, NCCL, 2 / (gigabytes * 1e9),
        f"{generation}: {gigabytes:g} GB/s both ways by NVIDIA's data sheet; α: NCCL's own tuning table, ring, simple",
    )  # fmt: skip


def _pcie(name: str, gigatransfers: float) -> Network:
    """Return PCI Express with 16 lanes: 128 of 130 bits of a line are data (PCI-SIG)."""
    return Network(
        name, NCCL, 8 * (130 / 128) / (16 * gigatransfers * 1e9),
        f"16 lanes of {gigatransfers:g} GT/s, 128b/130b; α: NCCL's own tuning table, ring, simple",
    )  # fmt: skip


NETWORKS = {
    network.name: network
    for network in (
        _infiniband("ib-fdr", 54.54, "4 lanes of 14.0625 Gbit/s, 64b/66b"),
        _infiniband("ib-edr", 100.0, "4 lanes of 25.78125 Gbit/s, 64b/66b"),
        _infiniband("ib-hdr", 200.0, "4 lanes of 50 Gbit/s"),
        _infiniband("ib-ndr", 400.0, "4 lanes of 100 Gbit/s"),
        _ethernet("ethernet-1g", 1.0),
        _ethernet("ethernet-10g", 10.0),
        _ethernet("ethernet-25g", 25.0),
        _ethernet("ethernet-50g", 50.0),
        _ethernet("ethernet-100g", 100.0),
        Network(
            "nvlink", NCCL, 1 / 195e9,
            "NVLink 3 (A100): 195 GB/s in one direction by nccl-tests; α: NCCL's own tuning table, ring, simple",
        ),
        Network(
            "pcie3", NCCL, 1 / 12e9,
            "PCI Express 3 x16: 12 of 15.8 GB/s; α: NCCL's own tuning table, ring, simple",
        ),
        _nvlink("nvlink4", 900, "NVLink 4 (H100, H200)"),
        _nvlink("nvlink5", 1800, "NVLink 5 (B200)"),
        _pcie("pcie4", 16),
        _pcie("pcie5", 32),
        Network(
            "shared-memory", 2e-6, 1 / 7e9,
            "measured, MPICH 5: all-reduces of 0.25 to 32 MB move 3 to 11 GB/s; α: 1.8 µs (benchmarks.bench_scaling)",
        ),
    )
}  # fmt: skip
"""Networks by name. They include neither the overhead of a collective library nor other traffic."""

LONGEST = 86400.0
"""Longest time that is accepted, in seconds."""
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9, "ps": 1e-12}
_SECONDS = re.compile(rf"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*({'|'.join(UNITS)})")


def parse_seconds(text: str, option: str) -> float:
    """Parse a number and a unit, such as `120ms`, into seconds. Error messages begin with `option`."""
    match = _SECONDS.fullmatch(text.strip())
    if match is None or not float(match[1]) * UNITS[match[2]] <= LONGEST:
        units = ", ".join(dict.fromkeys(unit for unit in UNITS if unit.isascii()))
        raise InputError(
            f"{option}: not a time",
            expected=f"a number and a unit of {units}, such as 120ms, up to a day",
            got=repr(text),
        )
    return float(match[1]) * UNITS[match[2]]


def parse_network(text: str, option: str = "--network") -> Network:
    """Parse a network's name, or `alpha=2us,beta=0.1ns`. Error messages begin with `option`."""
    if text in NETWORKS:
        return NETWORKS[text]
    if "=" not in text:
        raise InputError(
            f"{option}: unknown network `{text}`" if option.startswith("--") else f"unknown network `{text}`",
            expected=f"one of {listing(list(NETWORKS))}; or alpha=2us,beta=0.1ns",
            hint=did_you_mean(text, NETWORKS),
        )
    parameters: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = (word.strip() for word in part.partition("="))
        if key not in ("alpha", "beta") or key in parameters:
            hint = did_you_mean(key, ("alpha", "beta"))
            raise InputError(f"{option}: not a network", expected="alpha=2us,beta=0.1ns", got=repr(text), hint=hint)
        parameters[key] = parse_seconds(value, f"{option}: {key}")
    if len(parameters) < 2:
        missing = "beta" if "alpha" in parameters else "alpha"
        hint = "alpha is the latency of a message, beta the time of a byte: 0.08ns at 100 Gbit/s"
        raise InputError(f"{option}: {missing} is missing", expected="alpha=2us,beta=0.1ns", got=repr(text), hint=hint)
    if not parameters["beta"]:
        raise InputError(
            f"{option}: beta must be above 0", expected="the seconds of a byte, such as 0.1ns", got=repr(text)
        )
    return Network(text, parameters["alpha"], parameters["beta"], "given")


@dataclass(frozen=True)
class Cluster:
    """Ranks on hosts: filled one host after the other, each with one connection to the network."""

    ranks: int
    between: Network
    """Network between hosts."""
    within: Network
    """Network between the ranks of a host."""
    per_host: int = 1
    """Ranks per host; the last host may have fewer."""

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.ranks // self.per_host)

    @property
    def on_host(self) -> int:
        """Ranks of a full host."""
        return min(self.per_host, self.ranks)

    def of(self, ranks: int) -> Cluster:
        """Return a cluster with another number of ranks."""
        return Cluster(ranks, self.between, self.within, self.per_host)
