"""Bytes of strategies match their papers, and exposed communication adds to the time of a step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import pytest

from netspec.distributed.cost_model.collectives import all_gather, ring, seconds
from netspec.distributed.cost_model.networks import Cluster, Network
from netspec.distributed.cost_model.plans import StepModel, TrainingJob, make_buckets, schedule_channel, times
from netspec.distributed.cost_model.strategies import NO_SPLIT, STRATEGIES, StepPrediction, predict
from netspec.distributed.cost_model.workload import ComputeModel, DenseShape, Layer, StepCost, cut

SLOW = Network("slow", 1e-5, 1e-8, "made up")
WITHIN = Network("within", 1e-6, 1e-10, "made up")
LAYERS = (
    Layer("conv", ((64, 32, 3, 3), (64,)), 0.02, 0.04, 0.001, 64_000),
    Layer("fc", ((3200, 512), (512,)), 0.01, 0.02, 0.002, 2048, DenseShape(3200, 512)),
    Layer("logits", ((512, 16), (16,)), 0.001, 0.002, 0.001, 64, DenseShape(512, 16, follows=True)),
)
N = sum(layer.nbytes for layer in LAYERS)
JOB = TrainingJob(ComputeModel((StepCost(32, LAYERS, 0.003),)), 32, per_worker=True, algorithm=ring)


def cluster(ranks: int, per_host: int = 1) -> Cluster:
    return Cluster(ranks, SLOW, WITHIN, per_host)


def predicted(name: str, ranks: int, job: TrainingJob = JOB, per_host: int = 1) -> StepPrediction:
    actual = predict(name, job, cluster(ranks, per_host))
    assert isinstance(actual, StepPrediction), actual
    return actual


@pytest.mark.parametrize("p", [2, 4, 8])
def test_bytes_sent_match_theory(p: int):
    share = (p - 1) / p
    columns = 64, 512, 16  # a bit for each weight and two values for each column; biases are sent in full
    bits = (64 * 288 + 3200 * 512 + 512 * 16) / 8 + 8 * sum(columns)
    sent_values = 8 * sum(round(0.01 * size) for size in (64 * 288, 3200 * 512, 512 * 16))
    biases = 2 * share * 4 * (64 + 512 + 16)
    biases_of_dense = 2 * share * 4 * (512 + 16)
    conv, inputs, logits = LAYERS[0].nbytes, 4 * 32 * p * (3200 + 512), 4 * 32 * 16
    expected = {
        "all_reduce": 2 * share * N,
        "all_reduce_bfloat16": share * N,
        "sharded_optimizer": 2 * share * N,
        "local_sgd": 2 * share * N / 8,
        "elastic_averaging": 2 * share * N / 8,
        "one_bit": (p - 1) * bits + biases,
        "top_k": (p - 1) * sent_values + biases,
        "model": 2 * share * (conv + inputs + logits) + biases_of_dense,
    }
    by_columns = replace(JOB, ways={"fc": "columns", "logits": "columns"})
    for name, nbytes in expected.items():
        actual = predicted(name, p, by_columns if name == "model" else JOB).traffic
        assert actual.by_role == {"worker": pytest.approx(nbytes)}, name
        assert actual.total == pytest.approx(p * nbytes)
        assert actual.between_hosts == pytest.approx(p * nbytes)


def test_servers_and_workers_send_each_other_everything_once():
    actual = predicted("parameter_server", 8, replace(JOB, servers=2)).traffic
    assert actual.by_role == {"worker": pytest.approx(N), "server": pytest.approx(6 * N / 2)}
    more = predicted("parameter_server", 8, replace(JOB, servers=6))
    assert more.traffic.by_role == {"worker": pytest.approx(N), "server": pytest.approx(2 * N / 6)}
    assert more.batch == 2 * 32


def test_server_receives_from_all_workers():
    """With six workers and one server, the server's connection carries six times the bytes of a worker's, both ways."""
    actual = predicted("parameter_server", 7, replace(JOB, servers=1, first_bucket=1e9)).times
    assert actual.communication == pytest.approx(2 * 6 * (SLOW.alpha + N * SLOW.beta))


def test_hierarchical_sends_less_between_hosts():
    flat, layered = (predicted(name, 16, per_host=4).traffic for name in ("all_reduce", "hierarchical"))
    assert layered.by_role["worker"] == pytest.approx(flat.by_role["worker"])
    assert layered.between_hosts == pytest.approx(4 * 2 * 3 / 4 * N)


def test_factors_are_sent_if_smaller():
    job = replace(JOB, samples=2, per_worker=True)
    p, actual = 4, predicted("sufficient_factors", 4, job)
    factors = 4 * 2 * (3200 + 512 + 512 + 16) * (p - 1)
    full_gradients = 2 * 3 / 4 * (LAYERS[0].nbytes + 4 * 512 + 4 * 16)  # including the biases
    assert actual.traffic.by_role["worker"] == pytest.approx(factors + full_gradients)
    half = (LAYERS[1].backward + LAYERS[2].backward) / 2 * 2 / 32  # for two samples
    assert actual.times.compute == pytest.approx(job.work(p).seconds + (p - 1) * half)
    many = replace(job, samples=4096)
    assert predicted("sufficient_factors", p, many).traffic == predicted("all_reduce", p, many).traffic


def test_a_pipeline_waits_in_its_bubble():
    """Three equal stages without bytes to send take (m + p - 1) / m times a third of the work."""
    layers = tuple(Layer(name, (), 0.01, 0.02) for name in "abc")
    job = TrainingJob(ComputeModel((StepCost(12, layers),)), 12, micro_batches=6)
    actual = predicted("pipeline", 3, job)
    bubble = 2 / 8  # (p - 1) / (m + p - 1) of the time: Huang et al. 2019, "GPipe"
    assert actual.times.step == pytest.approx(0.09 / 3 / (1 - bubble))
    assert actual.efficiency == pytest.approx(1 - bubble)
    carrying = replace(job, compute=ComputeModel((StepCost(12, tuple(replace(layer, output=50) for layer in layers)),)))
    assert predicted("pipeline", 3, carrying).traffic.total == pytest.approx(2 * 2 * 12 * 50)


def test_stages_minimize_the_slowest():
    assert cut([1, 1, 1, 1], 2) == [0, 2]
    assert cut([5, 1, 1, 1], 2) == [0, 1]
    assert cut([1, 2, 3, 4, 5, 6], 3) == [0, 3, 5]
    assert cut([1, 1, 9], 3) == [0, 1, 2]


def test_buckets_are_filled_in_backward_order():
    parts = [(40.0, 20.0, 1.0), (70.0, 35.0, 2.0), (0.0, 0.0, 3.0), (300.0, 150.0, 4.0), (10.0, 5.0, 5.0)]
    assert [(make_bucket.bytes, make_bucket.ready) for make_bucket in make_buckets(parts, first=100, others=200)] == [
        (55, 2),
        (150, 4),
        (5, 5),
    ]
    assert make_buckets([(0.0, 0.0, 1.0)]) == []


def test_channel_sends_messages_in_order():
    """Messages that are ready at 1, 2 and 9 and take 3 are sent at 1, 4 and 9."""
    actual = schedule_channel([(1.0, 3.0), (2.0, 3.0), (9.0, 3.0)])
    assert (actual.busy, actual.end) == (9.0, 12.0)
    assert schedule_channel([]).end == 0.0


def test_exposed_time_excludes_communication_hidden_by_the_backward_pass():
    actual = predicted("all_reduce", 4, replace(JOB, first_bucket=1, bucket=1)).times
    each = [seconds(ring(layer.nbytes, cluster(4)), cluster(4)) for layer in reversed(LAYERS)]
    assert actual.communication == pytest.approx(sum(each))
    end = 0.0
    for ready, duration in zip((0.002, 0.022, 0.062), each, strict=True):
        end = max(end, ready) + duration
    assert actual.exposed == pytest.approx(end - 0.062)
    assert actual.exposed < actual.communication
    assert actual.step == pytest.approx(actual.compute + actual.exposed)


def test_only_the_last_batch_hides_communication():
    once, twice = (replace(JOB, compute=ComputeModel((StepCost(32, LAYERS, accumulate=times),))) for times in (1, 2))
    assert predicted("all_reduce", 4, twice).times.exposed > predicted("all_reduce", 4, once).times.exposed


def test_sharded_update_costs_its_share():
    actual = predicted("sharded_optimizer", 4).times
    assert actual.compute == pytest.approx(JOB.work(4).seconds - 0.004 * 3 / 4)
    assert actual.exposed >= seconds(all_gather(N, cluster(4)), cluster(4))


def test_jitter_waits_for_the_slowest():
    """The expected maximum of 100 normal deviates is 2.508 (Harter 1961, Biometrika 48, table 1)."""
    plan = StepModel(JOB.work(1))
    waiting = times(plan, cluster(100), 100, jitter=0.01).waiting
    # Blom's formula has an error of less than half a percent.
    assert waiting == pytest.approx(0.02508 * plan.work.seconds, rel=0.01)
    assert times(plan, cluster(1), 1, jitter=0.01).waiting == 0


def test_efficiency_falls_with_workers_and_is_1_for_one():
    for name in STRATEGIES:
        assert predicted(name, 1).efficiency == pytest.approx(1)
        assert predicted(name, 1).traffic.total == 0
    for name in ("all_reduce", "sharded_optimizer", "local_sgd", "one_bit", "top_k"):
        job = replace(JOB, jitter=0.02)
        actual = [predicted(name, ranks, job).efficiency for ranks in (1, 2, 4, 8, 16, 32)]
        assert all(after < before for before, after in pairwise(actual)), name


def test_global_batch_is_split_with_remainder():
    job = replace(JOB, per_worker=False)
    assert predicted("all_reduce", 5, job).times.compute == pytest.approx(job.compute.at(7).seconds)
    assert job.alone == pytest.approx(32 / job.compute.at(32).seconds)


def test_times_between_measured_batches_are_on_the_line():
    def work(batch: int, seconds: float) -> StepCost:
        return StepCost(batch, (Layer("a", (), seconds, 2 * seconds, 0.5),), overhead=0.1)

    compute = ComputeModel((work(2, 1.0), work(4, 1.5), work(8, 3.5)))
    assert [compute.at(batch).forward for batch in (1, 2, 3, 4, 6, 8, 10)] == [0.75, 1, 1.25, 1.5, 2.5, 3.5, 4.5]
    assert compute.at(3).seconds == pytest.approx(3 * 1.25 + 0.6)
    assert compute.faster(2).at(3).seconds == pytest.approx(compute.at(3).seconds / 2)
    alone = ComputeModel((work(4, 1.5),)).at(2)
    assert (alone.forward, alone.update, alone.overhead) == (0.75, 0.5, 0.1)


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("all_reduce", 64, "a batch of 32 is too small for 64 workers"),
        ("hierarchical", 8, "it needs several hosts with several ranks each"),
        ("model", 32, "the 16 units of logits do not divide by 32"),
        ("model", 31, NO_SPLIT),
        ("pipeline", 4, "3 layers cannot form 4 stages"),
        ("parameter_server", 2, "3 servers leave no worker among 2 ranks"),
    ],
)
def test_impossible_options_give_a_reason(name: str, ranks: int, message: str):
    job = replace(JOB, per_worker=False, servers=3, ways={"logits": "columns"} if ranks == 32 else {})
    assert predict(name, job, cluster(ranks)) == message


@pytest.mark.parametrize("samples", [4, 64, 300])
@pytest.mark.parametrize("p", [2, 4])
def test_dense_layers_are_split_to_send_least(samples: int, p: int):
    """The chosen split sends the least; operations after `side` are not elementwise."""
    layers = (
        LAYERS[0],
        LAYERS[1],
        LAYERS[2],
        Layer("side", ((16, 8),), 0.0, 0.0, dense=DenseShape(16, 8)),
    )
    job = TrainingJob(ComputeModel((StepCost(samples, layers),)), samples, algorithm=ring)
    names, sent = ("fc", "logits", "side"), dict[tuple[str, ...], float]()
    for splits in product(("whole", "columns", "rows"), repeat=3):
        actual = predict("model", replace(job, ways=dict(zip(names, splits, strict=True))), cluster(p))
        if isinstance(actual, StepPrediction):
            sent[splits] = actual.traffic.by_role["worker"]
    assert len(sent) == 26  # all combinations except the one that splits nothing
    assert predicted("model", p, job).traffic.by_role["worker"] == pytest.approx(min(sent.values()))


def test_net_without_dense_layers_cannot_be_split():
    job = replace(JOB, compute=ComputeModel((StepCost(32, LAYERS[:1]),)))
    assert (
        predict("model", job, cluster(4)) == predict("sufficient_factors", job, cluster(4)) == "there is no Dense layer"
    )
