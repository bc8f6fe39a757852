"""Ten steps of every solver on a small net against recorded steps of Keras and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.compile import FIRST, LEARNING_RATE, SHARE, STEP, WEIGHT, build
from netspec.compile.training import Training
from netspec.graph.types import DType
from netspec.schema.load import load_net
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from tests.interpret import Arrays, run
from tests.peers import solvers
from tests.peers.recordings import load_answers
from tests.peers.solvers import CASES, DTYPES, SolverCase, key, variants

ANSWERS = load_answers("solvers")

NET: dict[str, Any] = {
    "netspec": 1,
    "inputs": {"x": {"shape": [solvers.FEATURES]}, "y": {"shape": [solvers.UNITS]}},
    "layers": [
        {"name": "hidden", "type": "Dense", "from": "x", "units": solvers.HIDDEN, "activation": "tanh"},
        {"name": "out", "type": "Dense", "units": solvers.UNITS},
    ],
    "losses": [{"type": "MeanSquaredError", "from": ["out", "y"]}],
}
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Largest difference, relative to the largest element."""

ALL = [(case, variant, dtype) for case in CASES for variant in variants(case) for dtype in DTYPES]


def fields(case: SolverCase, variant: dict[str, Any]) -> dict[str, Any]:
    """Return the fields as in YAML, in which Keras's decay is decoupled."""
    values = {"type": case.type, "learning_rate": solvers.RATE, **case.fields, **variant}
    values.pop("accumulate", None)
    if "weight_decay" in variant and case.peer == "keras":
        if case.type == "Muon":
            values["adam_weight_decay"] = variant["weight_decay"]
        elif "decoupled_weight_decay" in SOLVERS[case.type].model_fields:
            values["decoupled_weight_decay"] = True
    return values


def steps(solver: SolverSpec, dtype: str, variant: dict[str, Any]) -> Arrays:
    """All states after the last step."""
    kind, parts, spec = DType(dtype), solvers.parts(variant), load_net(NET)
    built = build(spec, solvers.BATCH // len(parts), training=True, dtype=kind)
    training = Training(spec, solver, kind)
    graphs = [training.step(built)] if len(parts) == 1 else [training.accumulate(built), training.update(built)]
    numbers = {name: array.astype(dtype) for name, array in solvers.given().items()}
    states = {name: numbers[name] for name in solvers.NAMES}
    for label, info in {label: info for graph in graphs for label, info in graph.states.items()}.items():
        stored_type = info.value.type
        first = info.initial.sample(0, label, stored_type.shape, dtype)
        states[label] = first if info.initialized_from is None else states[info.initialized_from]
    for step in range(solvers.STEPS):
        counted = {LEARNING_RATE: np.array(solvers.RATE, dtype), STEP: np.array(step + 1, dtype)}
        for part in parts:
            batch = {name: numbers[name][part] for name in ("x", "y")}
            weighed = {WEIGHT: np.array(1, dtype), FIRST: np.array(part is parts[0])}
            _, states = run(graphs[0].graph, {**batch, **(counted if len(parts) == 1 else weighed)}, states)
        if len(parts) > 1:
            _, states = run(graphs[1].graph, {**counted, SHARE: np.array(1 / len(parts), dtype)}, states)
    return states


def mark(variant: dict[str, Any], dtype: str) -> Any:
    """Both precisions run the same graph; in float32, rounding hides small differences."""
    return () if dtype == "float64" else pytest.mark.exhaustive if variant else pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "variant", "dtype"), [pytest.param(*case, id=key(*case), marks=mark(*case[1:])) for case in ALL]
)
def test_ten_steps_equal_the_peer(case: SolverCase, variant: dict[str, Any], dtype: str) -> None:
    for name, array in solvers.given().items():
        np.testing.assert_array_equal(ANSWERS[name], array, err_msg="record the peers' answers")
    expected = ANSWERS[key(case, variant, dtype)]
    solver = SOLVERS.parse(fields(case, variant))
    assert isinstance(solver, SolverSpec)
    states = steps(solver, dtype, variant)
    averaged = case.averages or "ema" in variant
    labels = [*solvers.NAMES, *(f"solver/{name}/average" for name in solvers.NAMES if averaged)]
    values = np.concatenate([states[label].ravel() for label in labels])
    assert np.abs(values - expected).max() <= TOLERANCE[dtype] * np.abs(expected).max()


WITHOUT = {"LARS", "LBFGS"}
"""Neither peer has LARS; for LBFGS see `test_lbfgs.py`."""


def test_every_other_solver_has_a_peer() -> None:
    assert set(SOLVERS.names()) - {case.type for case in CASES} == WITHOUT
