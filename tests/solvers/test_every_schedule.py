"""Every registered schedule against its closed form, written here in plain Python, and properties of all schedules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import cos, exp, floor, isfinite, pi, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import SCHEDULES
from netspec.solvers.schedules.base import ScheduleSpec
from netspec.solvers.sgd import SGD
from tests.solvers.problem import samples

TOTAL = 12


def schedule(**fields: Any) -> ScheduleSpec:
    spec = SCHEDULES.parse(fields)
    assert isinstance(spec, ScheduleSpec)
    return spec


def piecewise(t: int, total: int, *, boundaries: list[int], values: list[float]) -> float:
    for boundary, value in zip(boundaries, values, strict=False):
        if t <= boundary:
            return value
    return values[-1]


def exponential(
    t: int, total: int, *, initial: float, decay_rate: float, decay_steps: int = 0, staircase: bool = False
) -> float:
    time = t / (decay_steps or total)
    return initial * float(decay_rate ** (floor(time) if staircase else time))


def inverse_time(
    t: int, total: int, *, initial: float, decay_rate: float, decay_steps: int = 1, power: float = 1, staircase=False
) -> float:
    time = t / decay_steps
    return initial / float((1 + decay_rate * (floor(time) if staircase else time)) ** power)


def polynomial(
    t: int, total: int, *, initial: float, end: float = 1e-4, decay_steps: int = 0, power: float = 1, cycle=False
) -> float:
    period = decay_steps or total
    while cycle and period < t:
        period += decay_steps or total
    return (initial - end) * float((1 - min(t, period) / period) ** power) + end


def cosine(t: int, total: int, *, initial: float, decay_steps: int = 0, alpha: float = 0) -> float:
    period = decay_steps or total
    return initial * ((1 - alpha) * 0.5 * (1 + cos(pi * min(t, period) / period)) + alpha)


def formula(t: int, total: int, fields: Any) -> float:
    """Return the rate of any schedule, by its closed form."""
    if isinstance(fields, float):
        return fields
    reference = REFERENCES[fields["type"]]
    return reference(t, total, **{name: value for name, value in fields.items() if name != "type"})


def warmup(t: int, total: int, *, steps: int, then: Any, initial: float = 0.0) -> float:
    if t >= steps:
        return formula(t - steps, total - steps, then)
    return initial + (formula(0, total - steps, then) - initial) * t / steps


def restarts(
    t: int,
    total: int,
    *,
    initial: float,
    first_decay_steps: int,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0,
) -> float:
    index, since, period = 0, float(t), float(first_decay_steps)
    while since >= period:
        index, since, period = index + 1, since - period, period * t_mul
    return initial * ((1 - alpha) * m_mul**index * 0.5 * (1 + cos(pi * since / period)) + alpha)


def one_cycle(
    t: int, total: int, *, peak: float, decay_steps: int = 0, pct_start: float = 0.3, anneal_strategy: str = "cos",
    div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False, initial: float = 0.0,
    end: float = 0.0,
) -> float:  # fmt: skip
    length, low = decay_steps or total, initial or peak / div_factor
    ends = [(0.0, low), (pct_start * length - 1, peak)]
    if three_phase:
        ends.append((2 * pct_start * length - 2, low))
    ends.append((length - 1, end or low / final_div_factor))
    for (start, first), (stop, second) in pairwise(ends):
        if t <= stop:
            share = (t - start) / (stop - start)
            share = share if anneal_strategy == "linear" else (1 - cos(pi * share)) / 2
            return first + (second - first) * share
    return ends[-1][1]


def cyclic(
    t: int, total: int, *, initial: float, peak: float, step_size_up: int, step_size_down: int = 0,
    mode: str = "triangular", gamma: float = 1.0,
) -> float:  # fmt: skip
    """Smith 2017, in the form of PyTorch's documentation of CyclicLR, with the fraction of a cycle."""
    length = step_size_up + (step_size_down or step_size_up)
    cycle = floor(1 + t / length)
    x, ratio = 1 + t / length - cycle, step_size_up / length
    height = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
    return initial + (peak - initial) * height * {
        "triangular": 1.0, "triangular2": 2.0 ** (1 - cycle), "exp_range": float(gamma**t),
    }[mode]  # fmt: skip


def stable(
    t: int,
    total: int,
    *,
    peak: float,
    warmup_steps: int = 0,
    decay_steps: int = 0,
    shape: str = "linear",
    end: float = 0,
) -> float:
    if t < warmup_steps:
        return peak * t / warmup_steps
    fall = decay_steps or total // 5
    s = min(max(t - total + fall, 0) / fall, 1)
    left = {"linear": 1 - s, "cosine": 0.5 + cos(pi * s) / 2, "sqrt": 1 - sqrt(s)}[shape]
    return peak * end + peak * (1 - end) * left


def sequence(t: int, total: int, *, parts: list[dict[str, Any]]) -> float:
    start = 0
    for part in parts:
        length = part.get("steps") or round(part.get("share", 0) * total) or total - start
        if t < start + length or part is parts[-1]:
            return formula(t - start, length, part["schedule"])
        start += length
    raise AssertionError


REFERENCES: dict[str, Callable[..., float]] = {
    "Constant": lambda t, total, *, initial: initial,
    "StepDecay": lambda t, total, *, initial, step_size, gamma=0.1: initial * gamma ** floor(t / step_size),
    "PiecewiseConstantDecay": piecewise,
    "ExponentialDecay": exponential,
    "InverseTimeDecay": inverse_time,
    "PolynomialDecay": polynomial,
    "CosineDecay": cosine,
    "CosineDecayRestarts": restarts,
    "MultiStepDecay": lambda t, total, *, initial, milestones, gamma=0.1: (
        initial * gamma ** sum(milestone <= t for milestone in milestones)
    ),
    "InverseSqrtDecay": lambda t, total, *, initial, decay_steps: initial / sqrt(1 + t / decay_steps),
    "SigmoidDecay": lambda t, total, *, initial, gamma, step_size: initial / (1 + exp(-gamma * (t - step_size))),
    "OneCycle": one_cycle,
    "CyclicLR": cyclic,
    "WarmupStableDecay": stable,
    "Sequence": sequence,
    "ReduceLROnPlateau": lambda t, total, *, schedule, **_: formula(t, total, schedule),  # before any reduction
    "Warmup": warmup,
}
SAMPLES = samples(SCHEDULES)


@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_schedule_equals_its_closed_form(type_, sample) -> None:
    spec = schedule(type=type_, **sample)
    rates = [spec.value(t, TOTAL) for t in range(2 * TOTAL)]
    assert rates == pytest.approx(
        [REFERENCES[type_](t, TOTAL, **sample) for t in range(2 * TOTAL)], rel=1e-12, abs=1e-15
    )


@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_no_value_exceeds_its_upper_bound(type_, sample) -> None:
    spec = schedule(type=type_, **sample)
    assert isfinite(spec.upper_bound)
    assert max(spec.value(t, total) for total in (1, 5, TOTAL) for t in range(3 * TOTAL)) <= spec.upper_bound


@pytest.mark.parametrize("cls", list(SCHEDULES), ids=lambda cls: cls.__name__)
def test_schedule_has_docs_samples_and_a_closed_form(cls) -> None:
    name = cls.model_fields["type"].default
    assert name == cls.__name__
    assert "lr(t) = " in (cls.__dict__.get("__doc__") or ""), "the formula"
    assert cls.samples
    assert name in REFERENCES, "add the closed form to this file"
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}


@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_schedule_survives_dump_and_parse(type_, sample) -> None:
    spec = schedule(type=type_, **sample)
    assert SCHEDULES.parse(spec.model_dump(by_alias=True)) == spec


@pytest.mark.parametrize(
    ("fields", "step", "rate"),
    [
        # Caffe's examples/mnist/lenet_solver.prototxt: inv, and the rate that its log prints at these iterations.
        ({"type": "InverseTimeDecay", "initial": 0.01, "decay_rate": 1e-4, "power": 0.75}, 10000, 0.00594604),
        ({"type": "InverseTimeDecay", "initial": 0.01, "decay_rate": 1e-4, "power": 0.75}, 500, 0.00964069),
        # Caffe's models/bvlc_alexnet/solver.prototxt: step.
        ({"type": "StepDecay", "initial": 0.01, "gamma": 0.1, "step_size": 100000}, 99999, 0.01),
        ({"type": "StepDecay", "initial": 0.01, "gamma": 0.1, "step_size": 100000}, 300000, 1e-5),
        # Keras: a boundary has the value before it.
        ({"type": "PiecewiseConstantDecay", "boundaries": [100], "values": [1.0, 0.5]}, 100, 1.0),
        ({"type": "PiecewiseConstantDecay", "boundaries": [100], "values": [1.0, 0.5]}, 101, 0.5),
        ({"type": "CosineDecay", "initial": 0.1, "decay_steps": 1000}, 500, 0.05),
        ({"type": "Warmup", "steps": 5, "then": 0.1}, 0, 0.0),
        ({"type": "Warmup", "steps": 5, "then": 0.1}, 5, 0.1),
    ],
)
def test_known_rates(fields, step, rate) -> None:
    assert schedule(**fields).value(step, 20000) == pytest.approx(rate, rel=1e-6)


rates = st.floats(1e-6, 10.0)
periods = st.integers(1, 1000)
falling = st.one_of(
    st.fixed_dictionaries({"type": st.just("Constant"), "initial": rates}),
    st.fixed_dictionaries(
        {"type": st.just("StepDecay"), "initial": rates, "gamma": st.floats(0.01, 1), "step_size": periods}
    ),
    st.fixed_dictionaries(
        {"type": st.just("ExponentialDecay"), "initial": rates, "decay_rate": st.floats(0.01, 1)},
        optional={"decay_steps": periods, "staircase": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"type": st.just("InverseTimeDecay"), "initial": rates, "decay_rate": st.floats(1e-6, 10)},
        optional={"decay_steps": periods, "power": st.floats(0.1, 3), "staircase": st.booleans()},
    ),
    st.fixed_dictionaries(
        {"type": st.just("PolynomialDecay"), "initial": rates, "end": st.floats(0, 1e-6)},
        optional={"decay_steps": periods, "power": st.floats(0.1, 3)},
    ),
    st.fixed_dictionaries(
        {"type": st.just("CosineDecay"), "initial": rates},
        optional={"decay_steps": periods, "alpha": st.floats(0, 1)},
    ),
)
"""Schedules that never rise."""


@given(falling, st.integers(1, 2000), st.integers(0, 4000))
def test_decay_never_rises(fields, total, step) -> None:
    spec = schedule(**fields)
    before, after = spec.value(step, total), spec.value(step + 1, total)
    assert 0 <= after <= before * (1 + 1e-12)  # except for rounding of pow and cos
    assert before <= fields["initial"] * (1 + 1e-12)
    assert isfinite(before)


@given(falling, st.integers(1, 2000))
def test_decay_starts_at_its_initial_rate(fields, total) -> None:
    assert schedule(**fields).value(0, total) == pytest.approx(fields["initial"], rel=1e-12)


@given(falling.filter(lambda fields: "decay_steps" not in fields), st.integers(1, 2000), st.data())
def test_without_decay_steps_the_rate_is_positive_throughout_the_training(fields, total, data) -> None:
    step = data.draw(st.integers(0, total - 1))
    if fields["type"] == "StepDecay":
        fields = {**fields, "step_size": max(fields["step_size"], total // 50)}  # 0.01^50 is still a float
    assert schedule(**fields).value(step, total) > 0


@given(falling, st.integers(1, 500), st.floats(0, 1), st.integers(1, 2000))
def test_warmup_ends_at_the_next_schedule(fields, steps, start, more) -> None:
    """All steps of a warm-up are equal, up or down; after it the other schedule starts with its step 0."""
    spec, then, total = (
        schedule(type="Warmup", steps=steps, initial=start, then=fields),
        schedule(**fields),
        steps + more,
    )
    peak = then.value(0, more)
    values = [spec.value(step, total) for step in range(steps + 1)]
    assert values[0] == pytest.approx(start, abs=1e-12)
    assert values[-1] == peak
    stride = (peak - start) / steps
    assert [b - a for a, b in pairwise(values)] == pytest.approx([stride] * steps, abs=1e-9)
    assert [spec.value(steps + t, total) for t in range(5)] == [then.value(t, more) for t in range(5)]


@given(st.lists(st.floats(-5, 5) | st.just(float("nan")), max_size=30), st.integers(1, 4), st.integers(0, 3))
def test_plateau_lowers_the_rate_down_to_its_minimum(values, patience, cooldown) -> None:
    spec = schedule(type="ReduceLROnPlateau", schedule=0.1, patience=patience, cooldown=cooldown, min=0.003)
    state, before = spec.start(), 0.1
    for value in values:
        state = spec.observed(state, {"loss": value})
        rate = spec.rate(0, 1, state)
        assert 0.003 <= rate <= before
        before = rate
    assert state["reductions"] <= len(values) // patience


def test_plateau_keeps_a_scheduled_rate_below_its_minimum() -> None:
    spec = schedule(type="ReduceLROnPlateau", schedule={"type": "Warmup", "steps": 10, "then": 0.1}, min=0.05)
    assert spec.rate(1, 20, {**spec.start(), "reductions": 3}) == pytest.approx(0.01)


def test_list_is_a_sequence() -> None:
    spec = SGD.model_validate({"type": "SGD", "learning_rate": [{"steps": 2, "schedule": 0.1}, {"schedule": 0.2}]})
    assert [spec.learning_rate.value(step, 9) for step in range(4)] == [0.1, 0.1, 0.2, 0.2]
    assert SGD.model_validate(spec.model_dump(by_alias=True)) == spec


def test_training_shorter_than_its_warmup() -> None:
    spec = schedule(type="Warmup", steps=10, then={"type": "CosineDecay", "initial": 0.1})
    assert [spec.value(step, 4) for step in range(4)] == pytest.approx([0.0, 0.01, 0.02, 0.03])


def test_rate_underflows_to_zero() -> None:
    assert schedule(type="StepDecay", initial=0.1, gamma=0.1, step_size=1).value(100_000, 200_000) == 0.0
    assert schedule(type="ExponentialDecay", initial=0.1, decay_rate=0.1, decay_steps=1).value(100_000, 200_000) == 0.0
    assert schedule(type="InverseTimeDecay", initial=0.1, decay_rate=1e300, power=5).value(10_000, 20_000) == 0.0
