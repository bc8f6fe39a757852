"""Networks: known ones, those given by alpha and beta, and invalid ones."""

from __future__ import annotations

import pytest

from netspec.distributed.cost_model.networks import NETWORKS, Cluster, parse_network, parse_seconds
from netspec.errors import InputError


def test_rates_exclude_headers_of_the_link():
    for name, gigabits in (("ib-fdr", 54.54), ("ib-edr", 100), ("ib-hdr", 200), ("ib-ndr", 400)):
        assert 0.99 < 8 / NETWORKS[name].beta / (gigabits * 1e9) < 1
    for name, gigabits in (("ethernet-1g", 1), ("ethernet-10g", 10), ("ethernet-25g", 25), ("ethernet-100g", 100)):
        assert 8 / NETWORKS[name].beta / (gigabits * 1e9) == pytest.approx(1448 / 1538)
    assert all(network.source and network.name == name and network.alpha > 0 for name, network in NETWORKS.items())


def test_network_from_alpha_and_beta():
    actual = parse_network("beta=0.08ns, alpha=1.5us")
    assert (actual.alpha, actual.beta) == pytest.approx((1.5e-6, 8e-11))
    assert actual.seconds(1e9) == pytest.approx(0.08 + 1.5e-6)
    assert actual.seconds(1e9, flows=4) == pytest.approx(0.32 + 1.5e-6)
    assert parse_seconds("120 ms", "--x") == pytest.approx(0.12)
    assert parse_seconds("1e-3s", "--x") == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("ib-hrd", "unknown network `ib-hrd`", "did you mean `ib-hdr`?"),
        ("ethernet", "unknown network", "did you mean `ethernet-1g`?"),
        ("alpha=1us", "beta is missing", "0.08ns at 100 Gbit/s"),
        ("alpha=1us,beta=2", "beta: not a time", None),
        ("alpha=1us,beta=0ns", "beta must be above 0", None),
        ("alpha=1us,betta=2ns", "not a network", "did you mean `beta`?"),
        ("alpha=1us,alpha=2us,beta=1ns", "not a network", None),
        ("alpha=-1us,beta=1ns", "alpha: not a time", None),
        ("alpha=1e999us,beta=1ns", "alpha: not a time", None),
    ],
)
def test_invalid_networks_are_reported(text: str, message: str, hint: str | None):
    with pytest.raises(InputError) as caught:
        parse_network(text)
    (problem,) = caught.value.problems
    assert problem.message.startswith("--network: ")
    assert message in problem.message
    assert hint is None or hint in (problem.hint or "")


def test_ranks_fill_hosts():
    every = Cluster(10, NETWORKS["ib-hdr"], NETWORKS["shared-memory"], 4)
    assert (every.hosts, every.on_host) == (3, 4)
    assert (every.of(3).hosts, every.of(3).on_host) == (1, 3)
