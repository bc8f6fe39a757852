"""Warnings of `netspec check`: one case for each rule, with a spec next to it that is fine."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

import netspec
from netspec.compile import planning
from netspec.schema.bundled import zoo_root
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from netspec.tools.planning.worker_plan import worker_memory
from netspec.tools.specs import load_spec

NET = {
    "netspec": 1,
    "inputs": {"image": {"shape": [1, 28, 28]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "flat", "type": "Flatten", "from": "image"},
        {"name": "norm", "type": "BatchNormalization", "momentum": 0.9},
        {"name": "logits", "type": "Dense", "units": 10},
    ],
    "losses": [
        {"name": "loss", "type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}
    ],
}
TRAIN = {
    "netspec": 1,
    "net": NET,
    "data": {
        "train": {
            "source": "mnist", "split": "train", "batch_size": 64,
            "transforms": [{"type": "Rescaling", "scale": 0.004}],
        }
    },
    "solver": {"type": "Adam", "learning_rate": 0.001},
    "train": {"max_epochs": 1},
}  # fmt: skip


def changed(**changes: Any) -> dict[str, Any]:
    """Return the training with other values at dotted paths."""
    spec = deepcopy(TRAIN)
    for path, value in changes.items():
        target: Any = spec
        *parents, last = path.split("__")
        for step in parents:
            target = target[int(step) if step.isdigit() else step]
        target[int(last) if last.isdigit() else last] = value
    return spec


def test_a_sound_spec_has_no_warnings() -> None:
    assert netspec.check(TRAIN).warnings == ()


@pytest.mark.parametrize("name", ["lenet_mnist", "cifar10_quick", "tabular_adult", "char_lstm"])
def test_models_of_the_zoo_have_no_warnings(name: str) -> None:
    assert netspec.check(zoo_root() / name / "train.yaml", data=False).warnings == ()


SOFTMAX = {"name": "logits", "type": "Dense", "units": 10, "activation": "softmax"}
PROBABILITIES = [{"name": "loss", "type": "SparseCategoricalCrossentropy", "from": ["logits", "label"]}]
ONE_HOT = {"shape": [10]}
BINARY = [{"name": "loss", "type": "BinaryCrossentropy", "from": ["logits", "label"]}]
UNUSED = {"name": "unused", "type": "Dense", "units": 2, "from": "flat"}


@pytest.mark.parametrize(
    ("changes", "path", "message", "hint"),
    [
        (
            {"net__layers__2": SOFTMAX}, "losses.loss.from_logits",
            "`logits` ends with a softmax, and the loss applies another one",
            "remove the softmax from `logits`, or set `from_logits: false`",
        ),
        (
            {"net__losses": PROBABILITIES}, "losses.loss",
            "the loss expects probabilities, and `logits` has no softmax",
            "set `from_logits: true`, which is also more precise than a softmax in `logits`",
        ),
        (
            {"net__layers__2": SOFTMAX, "net__losses": BINARY, "net__inputs__label": ONE_HOT,
             "data__train__transforms": [{"type": "Rescaling", "scale": 0.004},
                                         {"type": "CategoryEncoding", "num_tokens": 10, "apply_to": "label"}]},
            "losses.loss.type", "BinaryCrossentropy treats each of the 10 values of `logits` as a separate yes or no",
            "use CategoricalCrossentropy, or SparseCategoricalCrossentropy for class indices",
        ),
        (
            {"net__layers__2__units": 1, "net__losses": [{**BINARY[0], "from_logits": True}],
             "net__inputs__label": {"shape": []}},
            "losses.loss.type", "BinaryCrossentropy distinguishes two classes, but the data has 10 classes",
            "use SparseCategoricalCrossentropy, and a last layer with 10 scores",
        ),
        (
            {"net__layers__2__units": 11}, "layers.logits", "`logits` has 11 scores, but `label` has only 10 classes",
            "set `units: 10`",
        ),
        (
            {"net__losses__0__class_weight": "balanced", "data__train__sampler": "balanced"},
            "losses.loss.class_weight",
            "rare classes count twice: they are drawn more often, and weigh more in the loss `loss`",
            "remove `class_weight`, or remove `sampler` from `data.train`",
        ),
        (
            {"data__train__transforms": []},
            "data.train.transforms", "the pixels of `image` reach the net unscaled",
            'add `transforms: [{type: Rescaling, scale: "${1/255}"}]` to each split',
        ),
        (
            {"net__layers__1__momentum": 0.99, "train": {"max_steps": 20}}, "layers.norm.momentum",
            "the moving averages of `norm` are still 82% initial values after 20 steps",
            "set `momentum: 0.5`, or train longer",
        ),
        (
            {"net__layers": [*NET["layers"][:2], UNUSED, {**NET["layers"][2], "from": "norm"}]}, "layers.unused",  # type: ignore[index]  # NET is a plain mapping
            "nothing reads `unused`", "remove it, name it in `from` of another layer, or in `outputs`",
        ),
        (
            {"solver__learning_rate": 3.0}, "solver.learning_rate", "a learning rate of 3 is unusual for Adam",
            "set a rate in this range, such as 3e-04",
        ),
    ],
)  # fmt: skip
def test_common_mistakes_are_reported(changes: dict[str, Any], path: str, message: str, hint: str) -> None:
    (warning,) = netspec.check(changed(**changes)).warnings
    assert (warning.path, warning.message, warning.hint) == (path, message, hint)
    assert warning.location is not None


def test_scores_are_found_behind_layers_that_reshape() -> None:
    scores = [*NET["layers"][:2], {**NET["layers"][2], "name": "scores"}]  # type: ignore[index]  # NET is a plain mapping
    flat = {"name": "logits", "type": "Flatten"}
    (warning,) = netspec.check(changed(net__layers=[*scores, flat], net__losses=PROBABILITIES)).warnings
    assert warning.message == "the loss expects probabilities, and `scores` has no softmax"


@pytest.mark.parametrize(
    ("split", "steps", "share"),
    [({}, 9, "91%"), ({"validation": 0.2, "test": 0.3}, 5, "95%"), ({"folds": 3, "fold": 0}, 6, "94%")],
)
def test_the_data_determines_the_number_of_steps(
    tmp_path: Path, split: dict[str, Any], steps: int, share: str
) -> None:  # fmt: skip
    for index in range(18):
        file = tmp_path / "photos" / f"class{index % 2}" / f"{index}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28)).save(file)
    source = {
        "source": "image_folder", "path": str(tmp_path / "photos"), "size": 28, "channels": 1, "batch_size": 2,
        "transforms": [{"type": "Rescaling", "scale": 0.004}], **({"split": split} if split else {}),
    }  # fmt: skip
    spec = changed(data__train=source, net__layers__2__units=2, net__layers__1__momentum=0.99)
    (warning,) = netspec.check(spec).warnings
    assert warning.message == f"the moving averages of `norm` are still {share} initial values after {steps} steps"


def memory(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Set the memory of the machine to this many bytes."""
    monkeypatch.setattr("netspec.tools.checking.net_warnings.machine_memory", lambda: nbytes)


def test_more_parameters_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 2048)
    (warning,) = netspec.check(TRAIN).warnings
    assert warning.message == "the parameters and their gradients do not fit into the memory of this machine"
    assert "batch_size" not in str(warning.hint)
    (warning,) = netspec.check(NET).warnings
    assert warning.message == "the parameters do not fit into the memory of this machine"


def test_more_optimizer_states_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = 4 * netspec.check(TRAIN).parameters
    memory(monkeypatch, 3 * parameters)  # Adam keeps two values for each parameter
    (warning,) = netspec.check(TRAIN).warnings
    assert warning.message.startswith("parameters, optimizer states and activations of a training step do not fit")
    assert warning.hint is not None
    memory(monkeypatch, 20 * parameters)
    assert netspec.check(TRAIN).warnings == ()


def test_more_activations_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 2**22)
    assert netspec.check(TRAIN).warnings == ()
    (warning,) = netspec.check(changed(data__train__batch_size=4096, train={"max_epochs": 100})).warnings
    assert warning.message.startswith("parameters, optimizer states and activations of a training step do not fit")


def test_activations_that_fit_if_some_are_recomputed_need_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the training itself determines which activations, and how few, are recomputed."""
    spec = changed(data__train__batch_size=4096, train={"max_epochs": 100})
    spec["net"]["layers"][1:2] = [{"type": "Dense", "units": 64, "activation": "softplus"}] * 12
    needed = worker_memory(load_spec(spec), 1, 4096).nbytes
    plan_memory, plans = planning._plan_memory, list[object]()

    def counted(*arguments: Any, **options: Any) -> object:
        plans.append(arguments)
        return plan_memory(*arguments, **options)

    monkeypatch.setattr(planning, "_plan_memory", counted)
    memory(monkeypatch, int(0.8 * needed))
    assert netspec.check(spec).warnings == ()
    assert 1 < len(plans) <= 3


@pytest.mark.parametrize("name", SOLVERS.names())
def test_default_rates_of_solvers_are_usual(name: str) -> None:
    solver = SOLVERS[name]
    assert issubclass(solver, SolverSpec)
    rate = solver.model_fields["learning_rate"].default.upper_bound
    low, high = solver.usual_learning_rates
    assert low <= rate <= high


def test_class_folders_are_counted(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cat"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("L", (28, 28)).save(tmp_path / "photos" / name / "1.png")
    split = {
        "source": "image_folder", "path": str(tmp_path / "photos"), "size": [28, 28], "channels": 1, "batch_size": 8,
        "transforms": [{"type": "Rescaling", "scale": 0.004}],
    }  # fmt: skip
    (warning,) = netspec.check(changed(data__train=split, train={"max_steps": 100})).warnings
    assert warning.message == "`logits` has 10 scores, but `label` has only 3 classes"


def test_fewer_scores_than_classes_are_an_error() -> None:
    with pytest.raises(netspec.InputError) as caught:
        netspec.check(changed(net__layers__2__units=9))
    (problem,) = caught.value.problems
    assert problem.message == "the data has 10 classes, more than the net"
    assert problem.expected == "`label` from 0 to 8: `logits` has `units: 9`, one for each class"
    assert (problem.path, problem.got) == ("data.train.source", "0 to 9")
    assert problem.hint == "set `units: 10` in `logits`"


@pytest.mark.parametrize(("size", "count"), [(800, 0), (801, 1)])
def test_a_vocabulary_that_is_larger_than_the_net(size: int, count: int, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some words and some more")
    net = {
        "netspec": 1,
        "inputs": {name: {"shape": [2], "dtype": "int32"} for name in ("text", "target")},
        "layers": [
            {"name": "vectors", "type": "Embedding", "input_dim": 800, "output_dim": 4, "from": "text"},
            {"name": "scores", "type": "Dense", "units": 800},
        ],
        "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["scores", "target"], "from_logits": True}],
    }
    tokenizer = {"type": "words", "size": size, "unknown": True}
    split = {"source": "text", "path": str(tmp_path / "text.txt"), "tokenizer": tokenizer, "length": 2, "batch_size": 1}
    warnings = netspec.check(changed(net=net, data__train=split)).warnings
    assert [warning.message for warning in warnings] == [
        "the tokenizer may have more tokens than the net accepts in `text`"
    ] * count
    for warning in warnings:
        assert warning.hint == "set `size: 800`, or enlarge the net"
        assert warning.path == "data.train.tokenizer.size"


def test_a_freeze_of_everything_is_reported_at_the_freeze(tmp_path: Path) -> None:
    text = 'init_from: {file: weights.h5, freeze: ["*"]}\n'
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(TRAIN, sort_keys=False) + text)
    with pytest.raises(netspec.InputError) as caught:
        netspec.check(tmp_path / "train.yaml")
    (problem,) = [each for each in caught.value.problems if "nothing to train" in each.message]
    assert problem.location is not None
    assert problem.location.text.strip() == text.strip()
