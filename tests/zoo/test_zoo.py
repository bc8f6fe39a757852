"""The model zoo: every model passes `check`, has a card and schema comments, and the schema files are up to date."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from netspec.compile import ProgramKind
from netspec.schema.bundled import MODEL_FILES, zoo_root
from netspec.schema.specs.json_schema import json_schema
from netspec.tools.checking.check import check
from netspec.tools.exporting.export import export_model
from netspec.tools.import_model import import_model
from netspec.tools.zoo import ZooModel, zoo
from netspec.tools.zoo_verification import count_net
from netspec.training.inference.model import load
from netspec.training.preprocessing import PreprocessingRecord
from tests.zoo.nets import nets, small_net
from tests.zoo.table import README, with_table

SPECS = sorted(path for name in MODEL_FILES for path in zoo_root().glob(f"*/{name}"))


@pytest.mark.parametrize("kind", ["net", "train"])
def test_the_schema_for_editors_is_up_to_date(kind: str) -> None:
    file = zoo_root() / "schema" / f"{kind}.json"
    now = json_schema("net" if kind == "net" else "train")
    assert json.loads(file.read_text()) == json.loads(json.dumps(now)), f"make it anew: netspec schema {kind} > {file}"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_spec_of_the_zoo_names_its_schema(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    kind = "train" if path.name == "train.yaml" else "net"
    assert first == f"# yaml-language-server: $schema=../schema/{kind}.json"
    assert (path.parent / "../schema" / f"{kind}.json").resolve().is_file()


@pytest.mark.parametrize("model", zoo(), ids=lambda model: model.name)
def test_every_model_of_the_zoo_is_right(model: ZooModel) -> None:
    spec = model.specs[-1]  # the training file, which contains the net
    small = ["data.train.batch_size=2"] if spec.name == "train.yaml" else []  # planning large steps takes long
    assert check(spec, data=False, overrides=small).parameters > 0


@pytest.mark.parametrize("path", nets(), ids=lambda path: path.parent.name)
def test_every_net_of_the_zoo_computes_the_same_in_onnxruntime_and_after_an_import(path: Path, tmp_path: Path) -> None:
    spec = small_net(path)
    model, random = load(spec, device="reference"), np.random.default_rng(11)
    for name, array in model.parameters.items():  # zero biases would hide wrong assignments
        model.parameters[name] = array + 0.1 * random.random(array.shape)
    kinds = model.spec.inputs.items()
    inputs = {
        name: random.standard_normal((2, *declared.shape))
        if declared.dtype == "float32"
        else np.ones((2, *declared.shape), declared.dtype)
        for name, declared in kinds
        if name in model.compiler.graph(ProgramKind.PREDICT, 1).inputs()
    }
    report = export_model(
        model, model.spec, tmp_path / "m.onnx", PreprocessingRecord(), batch=None, opset=None, inputs=inputs
    )
    for comparison in (report.comparison, report.on_user_inputs):
        assert comparison is not None
        assert comparison.whole.scaled < 1e-4  # deep nets amplify float32 rounding: vit_tiny differs by 4e-5
    imported = import_model(tmp_path / "m.onnx", tmp_path / "imported")
    repeated = load(imported.net, imported.weights, device="reference")
    fed = repeated.spec.inputs.keys()
    outputs, expected = repeated.predict({name: inputs[name] for name in fed}), model.predict(inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-5 * abs(array).max(), err_msg=name)


@pytest.mark.parametrize("model", zoo(), ids=lambda model: model.name)
def test_every_card_is_true(model: ZooModel) -> None:
    card = model.card
    assert count_net(model) == (card.parameters.count, card.flops.count)
    assert all(result.reaches_its_goal for result in card.results)
    title, first, *_ = (model.readme() or "").split("\n\n")
    assert title.startswith("# ")
    assert re.sub(r"\[(.*?)\]\(.*?\)", r"\1", first) == f"Data: {card.data}"
    digest = None if model.weights is None else hashlib.sha256(model.weights.read_bytes()).hexdigest()
    assert digest == card.weights_sha256


@pytest.mark.parametrize("model", zoo(), ids=lambda model: model.name)
def test_every_card_has_measurements_and_a_picture(model: ZooModel) -> None:
    page = model.readme() or ""
    pictures = re.findall(r"\]\(([^)]*\.(?:svg|png))\)", page)
    assert pictures
    assert all((model.folder / picture).is_file() for picture in pictures)
    table = re.search(r"^\| .*\|\n\|---.*\n((?:\| .*\n)+)", page, re.MULTILINE)
    assert table, "no table of measurements"
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", page), "a measurement has a date"


def test_all_weights_together_are_small() -> None:
    assert sum(model.weights.stat().st_size for model in zoo() if model.weights) <= 25e6


def test_the_table_of_all_models_is_up_to_date() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_table(text), "make it anew: python -m tests.zoo.table"


def test_pages_count_the_models_of_the_zoo() -> None:
    models = zoo()
    measured, trained = sum(bool(model.card.results) for model in models), sum(bool(model.weights) for model in models)
    page = " ".join(README.read_text(encoding="utf-8").split())
    assert f"one of these {len(models)}." in page
    assert f"{measured} cards have measured results, and {trained} models have trained weights" in page
    front = (zoo_root().parent / "README.md").read_text(encoding="utf-8")
    assert f"{len(models)} models, from LeNet to a small GPT, {trained} of them with weights" in front
