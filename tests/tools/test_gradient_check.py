"""`netspec gradcheck`: gradients of a user's net against central differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.errors import InputError, RunError
from netspec.graph.ops.unary import Tanh
from netspec.graph.value import Value
from netspec.tools.checking import gradient_check

NET: dict[str, Any] = {
    "netspec": 1, "name": "small",
    "inputs": {"x": {"shape": [3]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "fc1", "type": "Dense", "units": 4, "activation": "relu"},
        {"name": "fc2", "type": "Dense", "units": 4, "activation": "tanh"},
        {"name": "drop", "type": "Dropout", "rate": 0.3},
        {"name": "norm", "type": "BatchNormalization"},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
}  # fmt: skip


def wrong_tanh(self: Tanh, y: Value, dy: Value) -> tuple[Value]:
    return (dy * 1.01,)


def training(folder: Path, x: np.ndarray) -> dict[str, Any]:
    np.savez(folder / "data.npz", x=x.astype(np.float32), label=(np.arange(len(x)) % 3).astype(np.int32))
    return {
        "netspec": 1, "net": NET,
        "data": {"train": {"source": "npz", "path": str(folder / "data.npz"), "batch_size": 9}},
        "solver": {"type": "Adam", "learning_rate": 0.01}, "train": {"max_steps": 2, "precision": "bfloat16"},
    }  # fmt: skip


def test_right_gradients_pass_on_real_data(tmp_path: Path) -> None:
    spec = training(tmp_path, np.random.default_rng(0).normal(size=(12, 3)))
    check = netspec.gradcheck(spec, batch_size=5)
    assert (check.batch_size, check.data, check.failed) == (5, "the first batch of the training data", [])
    assert {tensor.name for tensor in check.tensors} >= {"fc1/kernel", "norm/gamma", "logits/bias", "x"}
    assert max(tensor.error for tensor in check.tensors) < 1e-5
    assert check.sampled == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "data.npz"], "nothing is written"


def test_a_wrong_derivative_fails_with_its_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tanh, "vjp", wrong_tanh)
    (tmp_path / "net.yaml").write_text(json.dumps(NET))
    assert main(["gradcheck", str(tmp_path / "net.yaml"), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["failed"]) == {"fc1/kernel", "fc1/bias", "fc2/kernel", "fc2/bias", "x"}
    assert printed["suspect"] == "the error is in `fc2` or a layer after it, before `norm`, whose gradient is right"
    causes = {tensor["cause"] for tensor in printed["tensors"] if tensor["result"] == "failed"}
    assert causes == {"the gradient of an operation is wrong"}
    assert main(["gradcheck", str(tmp_path / "net.yaml")]) == 1
    assert "5 of 9 gradients wrong" in capsys.readouterr().out


@pytest.mark.parametrize("name", [{}, {"name": "logits"}])
def test_a_wrong_gradient_of_inputs_alone_is_of_the_first_layers(
    monkeypatch: pytest.MonkeyPatch, name: dict[str, str]
) -> None:
    monkeypatch.setattr(Tanh, "vjp", wrong_tanh)
    layers = [{"type": "Activation", "activation": "tanh"}, {**name, "type": "Dense", "units": 3}]
    check = netspec.gradcheck({**NET, "layers": layers, "losses": [{**NET["losses"][0], "from": None}]})
    assert check.suspect == f"the error is in a layer before `{name.get('name', 'dense')}`, whose gradient is right"


def test_a_kink_is_no_failure(tmp_path: Path) -> None:
    net = {
        **NET, "layers": [{"name": "on", "type": "ReLU"}, {"name": "logits", "type": "Dense", "units": 3}]
    }  # fmt: skip
    check = netspec.gradcheck({**training(tmp_path, np.zeros((4, 3))), "net": net})
    by_name = {tensor.name: tensor for tensor in check.tensors}
    assert by_name["x"].result == "kink"
    assert by_name["x"].kinks > 0
    assert by_name["logits/kernel"].result == "zero", "its input is 0"
    assert by_name["logits/bias"].result == "ok"
    assert not check.failed


def test_data_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    spec = training(tmp_path, np.zeros((4, 3)))
    spec["data"]["train"]["path"] = str(tmp_path / "missing.npz")
    check = netspec.gradcheck(spec)
    assert check.data.startswith("random inputs: ")
    assert "missing.npz" in check.data
    assert not check.failed


def test_a_large_net_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_check, "MAX_FLOPS", 1000)
    check = netspec.gradcheck(NET)
    assert check.sampled.startswith("0 of 4 elements of each tensor, because the net is large; 3 of 9 tensors")
    assert [tensor.checked for tensor in check.tensors] == [1, 1, 1]


def test_a_loss_that_is_not_finite_is_explained() -> None:
    net = {**NET, "layers": [{"name": "logs", "type": "Expression", "expr": "log(-x * x)"}, NET["layers"][-1]]}
    with pytest.raises(RunError, match=r"first in layer `logs` \(Expression\), the result of Log"):
        netspec.gradcheck(net)


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"elements": -1}, {"tolerance": 1.0}])
def test_wrong_arguments_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="must be"):
        netspec.gradcheck(NET, **options)


def test_a_net_without_a_loss_is_refused() -> None:
    with pytest.raises(InputError, match="no losses"):
        netspec.gradcheck({**NET, "losses": []})


def test_elements_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, compare = [], gradient_check._Checker._compare

    def recorded(self: Any, name: str, array: Any, gradient: Any, direction: Any, tolerance: float) -> Any:
        if name == "x" and np.count_nonzero(direction) == 1:
            checked.append(int(np.flatnonzero(direction)[0]))
        return compare(self, name, array, gradient, direction, tolerance)

    monkeypatch.setattr(gradient_check._Checker, "_compare", recorded)
    net = {**NET, "inputs": {**NET["inputs"], "x": {"shape": [200]}}}
    netspec.gradcheck(net, elements=6)
    assert len(set(checked)) == 6
    assert checked[3:] != sorted(checked[3:]), "three of the largest gradients, then others in random order"
