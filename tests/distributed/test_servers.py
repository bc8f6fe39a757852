"""Update rules of parameter servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from netspec.cli.train import _described
from netspec.distributed.cost_model.networks import NETWORKS, Cluster
from netspec.distributed.cost_model.plans import TrainingJob, traffic
from netspec.distributed.cost_model.strategies import STRATEGIES
from netspec.distributed.cost_model.workload import ComputeModel, StepCost
from netspec.distributed.parameter_server.rules import (
    Asynchronous,
    BoundedStaleness,
    Drop,
    Push,
    Rule,
    Synchronous,
    Update,
)
from netspec.distributed.worker_checks import check_workers
from netspec.distributed.world import acting_as
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.tools.checking.dry_run import dry_run
from netspec.tools.measuring.overlap import time_workers
from netspec.tools.planning.scale import as_trained, layers_of
from netspec.tools.planning.worker_plan import SimulatedCommunicator, worker_traffic
from tests.training.conftest import points, spec

__all__ = ["points", "spec"]


def push(worker: int, step: int, weight: float = 0.25) -> Push:
    return Push(worker, step, weight, 1.0 + worker, (0.1 * (step + 1),))


def decisions(rule: Rule, worker: int, step: int, weight: float = 0.25) -> list[tuple[str, list[int]]]:
    """Return the updates and drops that follow a gradient, with the workers whose gradients they contain."""
    return [
        ("update", [of.worker for of in command.pushes])
        if isinstance(command, Update)
        else ("drop", [command.push.worker])
        for command in rule.decide(push(worker, step, weight))
    ]


def test_a_synchronous_step_is_the_mean_of_the_first_gradients() -> None:
    rule = Synchronous(4, 1, 7)
    assert decisions(rule, 3, 7) == decisions(rule, 0, 7) == []
    assert rule.next_step(8) is None
    (update,) = rule.decide(push(1, 7, 0.5))
    assert isinstance(update, Update)
    assert [push.worker for push in update.pushes] == [0, 1, 3]  # added up in the order of ranks
    assert (update.share, update.count, update.rates) == (1.0, 8, (0.8,))
    assert rule.next_step(8) == 8
    assert decisions(rule, 0, 8) == []
    assert decisions(rule, 2, 7) == [("drop", [2])]  # the step is over
    assert (rule.late, rule.next_step(8)) == (1, 8)
    assert decisions(rule, 2, 8) == []
    assert decisions(rule, 3, 8) == [("update", [0, 2, 3])]


def test_gradients_without_samples_make_no_step() -> None:
    rule = Synchronous(3, 1, 0)
    assert decisions(rule, 0, 0, 0.0) == decisions(rule, 2, 0, 0.0) == []
    assert decisions(rule, 1, 0, 0.1) == [("update", [0, 1, 2])]
    assert decisions(rule, 0, 1, 0.0) == decisions(rule, 1, 1, 0.0) == []
    assert decisions(rule, 2, 1, 0.0) == [("drop", [0]), ("drop", [1]), ("drop", [2])]
    assert (rule.next_step(2), rule.late) == (2, 0)
    assert list(map(type, Asynchronous(0, 1).decide(push(0, 0, 0.0)))) == [Drop]


def test_asynchronous_gradients_use_their_share_of_the_rate() -> None:
    rule = Asynchronous(5, 1)
    (update,) = rule.decide(push(2, 9, 0.25))
    assert isinstance(update, Update)
    assert (update.share, update.rates, update.count) == (4.0, (0.25,), 6)
    assert rule.next_step(10) == 10


def test_asynchronous_gradients_use_the_full_momentum() -> None:
    (update,) = Asynchronous(5, 2).decide(Push(2, 9, 0.25, 1.0, (1.0, 0.5, 0.9)))
    assert isinstance(update, Update)
    assert update.rates == (0.25, 0.125, 0.9)


def test_no_worker_is_ahead_by_more_than_the_staleness() -> None:
    rule = BoundedStaleness(3, 2, 10, 0, 1)
    for step in (10, 11):
        assert decisions(rule, 0, step) == [("update", [0])]
        assert rule.next_step(step + 1) == step + 1
    decisions(rule, 0, 12)
    assert rule.next_step(13) is None  # the others have not finished step 10
    decisions(rule, 1, 10)
    assert rule.next_step(13) is None
    decisions(rule, 2, 10)
    assert rule.next_step(13) == 13


@pytest.mark.parametrize(
    ("fields", "ranks", "path", "message"),
    [
        ({"servers": 3}, 3, "parallel.servers", "there are no ranks left for workers"),
        ({"servers": 1, "backup_workers": 2}, 3, "parallel.backup_workers", "a step would not wait for any worker"),
        ({"servers": 1}, 8, "data.train.batch_size", "a batch has fewer samples than there are workers"),
    ],
)
def test_rank_problems_are_reported(fields: dict, ranks: int, path: str, message: str, spec) -> None:
    train_spec = spec() | {"parallel": {"strategy": "parameter_server", **fields}}
    train_spec["data"]["train"]["batch_size"] = 6
    with pytest.raises(InputError) as caught:
        check_workers(load_train(train_spec), ranks)
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (path, message)
    train_spec["parallel"]["backup_workers"] = 0
    check_workers(load_train(train_spec), {"parallel.servers": 4, "parallel.backup_workers": 3}.get(path, 7))


def test_server_training_has_a_dry_run(tmp_path: Path, spec) -> None:
    train_spec = spec() | {"parallel": {"strategy": "parameter_server", "servers": 2}}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(train_spec, sort_keys=False))
    report = dry_run(tmp_path / "train.yaml", workers=6)
    assert (report.workers, report.servers, report.largest_share) == (4, 2, -(-report.batch_size // 4))
    assert "4 workers and 2 servers" in _described(report)
    with acting_as(SimulatedCommunicator(6, 6)), pytest.raises(InputError, match="no communication is hidden"):
        time_workers(load_train(train_spec), 8, "reference", 1)
    sent = worker_traffic(load_train(train_spec), 6, 3, report.batch_size)
    sent = replace(
        sent, messages=[message for message in sent.messages if message.contents]
    )  # the others are a few bytes each
    nbytes = sent.messages[0].nbytes
    assert sent.sent_bytes() == {"worker": nbytes, "server": 4 * nbytes / 2}
    network = NETWORKS["ib-hdr"]
    layers = tuple(layer for layer, _ in layers_of(load_train(train_spec)))
    job = as_trained(
        TrainingJob(ComputeModel((StepCost(report.batch_size, layers),)), report.batch_size), load_train(train_spec)
    )
    assert job.servers == 2
    plan = STRATEGIES["parameter_server"].plan(job, Cluster(6, network, network, 3))
    predicted = traffic(plan, {"worker": 4, "server": 2})
    assert predicted.by_role == pytest.approx(sent.sent_bytes())
    assert predicted.between_hosts == pytest.approx(sent.between_hosts)


@pytest.mark.slow
def test_workers_and_servers_agree_in_every_mode(jobs) -> None:
    job = jobs(5, "servers.py")
    assert job.end() == 0, job.err
    assert job.out == "all modes agree\n"
    assert job.err == ""
