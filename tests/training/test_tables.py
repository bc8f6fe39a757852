"""Training on tables: values learned from columns are saved, and used in evaluation and prediction."""

from __future__ import annotations

import json
import os
import signal
from datetime import date
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.schema.bundled import zoo_root
from netspec.training.evaluation import test as evaluated
from netspec.training.events import Event
from netspec.training.run import Interrupted

TRAIN = """\
netspec: 1
net:
  netspec: 1
  name: fares
  inputs:
    features: {shape: [4]}
    town: {shape: [], dtype: int32}
    label: {shape: [], dtype: int32}
  layers:
    - {name: towns, type: Embedding, input_dim: 4, output_dim: 2, from: town}
    - {name: all, type: Concatenate, from: [features, towns]}
    - {type: Dense, units: 8, activation: relu}
    - {name: logits, type: Dense, units: 2}
  outputs: [logits]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
  metrics: [{type: SparseCategoricalAccuracy, name: accuracy, from: [logits, label]}]
data:
  train: &split
    source: csv
    path: train.csv
    header: true
    label: paid
    columns:
      age: {type: numeric, missing: median, normalization: standard}
      colour: categorical
      town: {type: categorical, output_mode: int, unknown: index, missing: unknown}
    batch_size: 16
    shuffle: true
  test:
    <<: *split
    path: test.csv
    shuffle: false
    batch_size: 10
solver: {type: Adam, learning_rate: 0.02}
train: {max_steps: 30, log_every: 1, seed: 2}
"""


def rows(count: int, seed: int, towns: tuple[str, ...]) -> list[str]:
    random = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        age, town, colour = random.integers(10, 90), random.choice(towns), random.choice(["red", "blue", "green"])
        paid = "yes" if (age > 50) == (town == "Bern") else "no"
        lines.append(f"{age if random.random() > 0.1 else ''},{town},{colour},{paid}")
    return lines


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, count, towns in (("train", 150, ("Bern", "Chur", "Genf")), ("test", 40, ("Bern", "Chur", "Basel"))):
        lines = ["age,town,colour,paid", *rows(count, len(name), towns)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "train.yaml").write_text(TRAIN)
    return tmp_path


DATASETS = os.environ.get("NETSPEC_DATASETS")


@pytest.mark.skipif(DATASETS is None, reason="NETSPEC_DATASETS does not name a folder with adult/adult.data")
def test_the_zoo_net_learns_adult(tmp_path: Path) -> None:
    spec = zoo_root() / "tabular_adult" / "train.yaml"
    run = netspec.train(spec, vars={"folder": f"{DATASETS}/adult"}, run_dir=tmp_path)
    assert run.test is not None
    assert run.test.samples == 16281
    assert run.test.metrics["accuracy"] >= 0.85


def same_weights(path: Path, other: Path) -> bool:
    first, second = (read_weights(folder / "weights.h5").arrays for folder in (path, other))
    return all(first[name].tobytes() == second[name].tobytes() for name in first)


def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(work: Path) -> None:
    uninterrupted = netspec.train("train.yaml", run_dir=work / "whole")
    assert uninterrupted.test is not None
    assert uninterrupted.test.samples == 40

    def interrupt(event: Event) -> None:
        if event["event"] == "log" and event["step"] == 13:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        netspec.train("train.yaml", run_dir=work / "parts", listeners=[interrupt])
    resumed = netspec.train("train.yaml", run_dir=work / "parts", resume=True)
    assert same_weights(uninterrupted.run_dir, resumed.run_dir)
    paged = netspec.train(
        "train.yaml", data={"train": {"cache": 0}}, run_dir=work / "paged"
    )  # without a cache, the file is read for each batch
    assert same_weights(uninterrupted.run_dir, paged.run_dir)


def test_column_statistics_are_saved_with_the_weights(work: Path) -> None:
    run = netspec.train("train.yaml", run_dir=work / "run")
    assert run.test is not None
    learned: Any = read_weights(run.run_dir / "weights.h5").meta["learned"]
    learned = learned["source"]
    towns = [line.split(",")[1] for line in (work / "train.csv").read_text().splitlines()[1:]]
    assert learned["town"].pop("fill") == mode(towns)
    assert learned["town"] == {"vocabulary": ["Bern", "Chur", "Genf"], "untrained": [0]}
    assert set(learned["age"]) == {"fill", "offset", "scale"}
    (work / "train.csv").write_text("age,town,colour,paid\n1,Ulm,grey,no\n")  # the training data is not read again
    assert evaluated("train.yaml", run.run_dir / "weights.h5").metrics == run.test.metrics


def test_spare_rows_of_an_embedding_are_no_missing_classes(work: Path) -> None:
    text = TRAIN.replace("input_dim: 4", "input_dim: 10").replace(", unknown: index, missing: unknown", "")
    text = text.replace("test.csv", "train.csv")  # no town is unknown
    text = text.replace("name: logits, type: Dense, units: 2", "name: logits, type: Dense, units: 3")
    (work / "train.yaml").write_text(text)
    warnings = list[Any]()

    def listen(event: Event) -> None:
        if event["event"] == "warning":
            warnings.append(event["message"])

    netspec.train("train.yaml", run_dir=work / "run", listeners=[listen])
    assert warnings == ["`logits` has 3 scores, but `label` has only 2 classes"]
    assert [warning.message for warning in netspec.check("train.yaml").warnings] == warnings


def predict(path: str, *more: str) -> int:
    words = ["--weights", "run/weights.h5", "--input", path, "--output", "out.npz", *more]
    return main(["predict", "train.yaml", *words])


def test_rows_of_another_table_are_prepared_as_in_the_training(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = netspec.train("train.yaml", run_dir=work / "run")
    learned: Any = read_weights(run.run_dir / "weights.h5").meta["learned"]["source"]
    (work / "train.csv").unlink()
    table_rows = [("20", "Bern", "red"), ("", "Ulm", "blue"), ("70", "Chur", "green")]
    for header, order in (("age,town,colour", (0, 1, 2)), ("id,colour,town,paid,age", (None, 2, 1, None, 0))):
        lines = [header, *(",".join("" if column is None else row[column] for column in order) for row in table_rows)]
        (work / "rows.csv").write_text("\n".join(lines) + "\n")
        assert predict("rows.csv", "--batch-size", "2") == 0
        assert capsys.readouterr().out.endswith("3 samples written to out.npz: logits [3, 2]\n")
        ages = (np.array([20, learned["age"]["fill"], 70]) - learned["age"]["offset"]) / learned["age"]["scale"]
        features = np.column_stack([ages, [[0, 0, 1], [1, 0, 0], [0, 1, 0]]]).astype(np.float32)
        most_frequent = 1 + learned["town"]["vocabulary"].index(learned["town"]["fill"])
        arrays = {"features": features, "town": np.array([1, most_frequent, 2], np.int32)}
        expected = netspec.load("train.yaml", "run/weights.h5").predict(arrays)["logits"]
        with np.load("out.npz") as written:
            # The same float32 arithmetic, in batches of another size.
            np.testing.assert_allclose(written["logits"], expected, rtol=1e-5, atol=1e-6)
    (work / "rows.csv").write_text("age,town,colour\n20,Bern,mauve\nold,Bern,red\n")
    assert predict("rows.csv") == 2
    printed = capsys.readouterr().err
    assert "rows.csv:2:9: error: 'mauve' is not a known category of column `colour`" in printed
    assert "rows.csv:3:1: error: column `age` has text here" in printed


def test_a_folder_among_tables_is_an_error(work: Path) -> None:
    netspec.train("train.yaml", train={"max_steps": 1}, run_dir=work / "run")
    (work / "more").mkdir()
    with pytest.raises(InputError, match="more is a folder, but the net was trained on tables"):
        netspec.predict(work / "run", [work / "train.csv", work / "more"])


def test_a_net_without_a_table_predicts_from_arrays_only(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    netspec.train("train.yaml", train={"max_steps": 1}, run_dir=work / "run")
    spec = yaml.safe_load(TRAIN)
    spec["data"] = {"train": {"source": "npz", "path": "some.npz", "batch_size": 4}}
    (work / "train.yaml").write_text(json.dumps(spec))
    (work / "rows.csv").write_text("1,2\n")
    assert predict("rows.csv") == 2
    assert "rows.csv cannot replace the training data, whose source is `npz`" in capsys.readouterr().err


def test_skipped_rows_are_counted_in_the_log(work: Path) -> None:
    with (work / "train.csv").open("a") as file:
        file.write("1,2\nx,Bern,red,no\n")
    with pytest.raises(InputError, match="this row has 2 cells"):
        netspec.train("train.yaml", run_dir=work / "strict")
    run = netspec.train(
        "train.yaml", train={"max_steps": 1}, data={"train": {"on_error": "skip"}}, run_dir=work / "run"
    )
    events = [json.loads(line) for line in (run.run_dir / "log.jsonl").read_text().splitlines()]
    assert [event["samples"] for event in events if event["event"] == "skipped"] == [2]


def test_answers_have_class_names_and_the_columns_of_their_rows(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    netspec.train("train.yaml", run_dir=work / "run")
    (work / "a.csv").write_text("id,age,town,colour,class\nx,20,Bern,red,1\n\ny,,Ulm,blue,2\nz,70,Chur,green,3\n")
    (work / "b.csv").write_text("id,age,town,colour,class\nw,71,Bern,red,4\n")
    capsys.readouterr()
    assert main(["predict", "run", "--input", "a.csv", "--output", "out.csv", "--keep", "--batch-size", "2"]) == 0
    assert capsys.readouterr().out.startswith(
        "3 samples written to out.csv: row, predicted_class, probability, id, age, "
    )
    header, *lines = (work / "out.csv").read_text().splitlines()
    assert header == "id,age,town,colour,class,row,predicted_class,probability"
    cells = [line.split(",") for line in lines]
    assert [row[:6] for row in cells] == [
        ["x", "20", "Bern", "red", "1", "1"],
        ["y", "", "Ulm", "blue", "2", "2"],
        ["z", "70", "Chur", "green", "3", "3"],
    ]
    assert {row[6] for row in cells} <= {"yes", "no"}
    assert all(0.5 <= float(row[7]) <= 1 for row in cells)
    answers = netspec.predict("run", ["a.csv", "b.csv"], keep=True).answers
    assert answers["id"] == ["x", "y", "z", "w"]
    assert answers["file"] == ["a.csv"] * 3 + ["b.csv"]
    assert answers["row"] == [1, 2, 3, 1]
    with (work / "a.csv").open("rb") as file:
        assert netspec.predict("run", file).answers["class"] == answers["predicted_class"][:3]


def test_skipped_rows_get_no_prediction(work: Path) -> None:
    text = TRAIN.replace("missing: median", "missing: drop")
    (work / "drop.yaml").write_text(text)
    netspec.train("drop.yaml", run_dir=work / "run")
    (work / "a.csv").write_text("id,age,town,colour\nx,,Bern,red\ny,30,Ulm,blue\nz,,Chur,green\nw,70,Chur,green\n")
    answers = netspec.predict("run", "a.csv", keep=True, batch_size=1).answers
    assert (answers["id"], answers["row"]) == (["y", "w"], [2, 4])


PRICES = """\
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [1]}, label: {shape: []}}
  layers: [{name: price, type: Dense, units: 1}]
  losses: [{type: MeanSquaredError, from: [price, label]}]
data:
  train:
    source: csv
    path: prices.csv
    header: true
    label: price
    columns:
      area: {type: numeric, normalization: standard}
      price: {type: numeric, normalization: standard}
    batch_size: 16
    shuffle: true
solver: {type: Adam, learning_rate: 0.05}
train: {max_epochs: 60}
"""


def test_prices_are_predicted_in_the_units_of_the_table(work: Path) -> None:
    areas = np.random.default_rng(1).integers(20, 200, 100)
    (work / "prices.csv").write_text("\n".join(["area,price", *(f"{area},{1000 * area + 5000}" for area in areas)]))
    (work / "prices.yaml").write_text(PRICES)
    run = netspec.train("prices.yaml", run_dir=work / "run")
    (work / "new.csv").write_text("area\n50\n150\n")
    answers = netspec.predict(run.run_dir, "new.csv").answers
    # A linear relation is learned up to 1 % of the standard deviation of prices.
    np.testing.assert_allclose(answers["prediction"], [55_000, 155_000], atol=1800)


def test_hints_at_the_notation_of_a_file_are_overrides_that_work(work: Path) -> None:
    days = [date(2024, 1, day) for day in range(1, 17)]
    rows = pa.table({"area": [float(day) for day in range(16)], "sold": days, "price": [1.0] * 16})
    pa.parquet.write_table(rows, work / "prices.parquet")
    spec = PRICES.replace("source: csv", "source: parquet").replace("prices.csv\n    header: true", "prices.parquet")
    spec = spec.replace("[1]", "[2]").replace("      price:", "      sold: {type: date, parts: [day]}\n      price:")
    (work / "prices.yaml").write_text(spec.replace("max_epochs: 60", "max_epochs: 1"))
    netspec.train("prices.yaml", run_dir=work / "run")
    (work / "new.csv").write_text("area;sold\n1,5;20.11.2026\n")
    with pytest.raises(InputError) as caught:
        netspec.predict("run", "new.csv")
    assert [str(problem.hint) for problem in caught.value.problems] == [
        "write numbers such as 1234.5", "add `data.train.columns.sold.format=%d.%m.%Y` to read such dates",
    ]  # fmt: skip
    with pytest.raises(InputError) as caught:
        netspec.load("run").predict("new.csv")
    assert str(caught.value.problems[1].hint) == "write dates such as 2026-11-20"
    (work / "iso.csv").write_text("area,sold\n1.5,2026-11-20\n")
    (work / "new.csv").write_text("area;sold\n1.5;20.11.2026\n")
    expected = netspec.predict("run", "iso.csv").answers
    assert netspec.predict("run", "new.csv", overrides=["data.train.columns.sold.format=%d.%m.%Y"]).answers == expected
    (work / "new.csv").write_text("area;sold\n1.5;03/04/2026\n")
    with pytest.raises(InputError, match=r"format=%m/%d/%Y` or `data\.train\.columns\.sold\.format=%d/%m/%Y` to read"):
        netspec.predict("run", "new.csv")


def test_numbers_are_written_with_the_digits_of_their_precision(work: Path) -> None:
    (work / "prices.csv").write_text("area,price\n1,3.1\n2,5.3\n3,8.9\n")
    (work / "prices.yaml").write_text(PRICES.replace("max_epochs: 60", "max_epochs: 1"))
    netspec.train("prices.yaml", run_dir=work / "run")
    for number in netspec.predict("run", "prices.csv").answers["prediction"]:
        assert str(number) == str(np.float32(number))


def test_kept_columns_keep_the_metadata_of_their_table(work: Path) -> None:
    (work / "prices.csv").write_text("area,price\n1,3.1\n2,5.3\n3,8.9\n")
    (work / "prices.yaml").write_text(PRICES.replace("max_epochs: 60", "max_epochs: 1"))
    netspec.train("prices.yaml", run_dir=work / "run")
    rows = pa.table({"area": [1.0, 2.0], "new": pa.array([True, None])}).replace_schema_metadata({"pandas": "{}"})
    pa.parquet.write_table(rows, work / "new.parquet")
    netspec.predict("run", "new.parquet", keep=True, output="kept.parquet")
    schema = pa.parquet.read_schema("kept.parquet")
    assert (schema.metadata[b"pandas"], schema.field("new").type) == (b"{}", pa.bool_())


def test_predictions_are_computed_batch_by_batch(work: Path) -> None:
    netspec.train("train.yaml", run_dir=work / "run")
    lines = ["age,town,colour", *(f"{20 + index % 60},Bern,red" for index in range(20_000))]
    (work / "many.csv").write_text("\n".join(lines) + "\n")
    stream = netspec.predict_stream("run", "many.csv", batch_size=1000)
    sizes = [len(batch) for batch in stream]
    assert sizes == [1000] * 20
    assert stream.samples == 20_000


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("The text\n", "got: the column 'The text'"),
        ("age;town;Colour\n1;Bern;red\n", "hint: add `'data.test.delimiter=;'` to separate cells at \";\""),
        ("age\ttown\tColour\n1\tBern\tred\n", 'hint: add `\'data.test.delimiter="\\t"\'` to separate cells at "\\t"'),
    ],
)
def test_files_without_the_columns_of_the_training(work: Path, content: str, facts: str) -> None:
    netspec.train("train.yaml", run_dir=work / "run")
    (work / "new.txt").write_text(content)
    with pytest.raises(InputError) as caught:
        netspec.predict("run", "new.txt")
    assert str(caught.value).endswith(facts)
    with pytest.raises(InputError) as caught:
        netspec.load("run").predict("new.txt")
    assert "data.test" not in str(caught.value), "`Model.predict` takes no overrides"


def test_problems_of_new_rows_are_located_in_their_file(work: Path) -> None:
    netspec.train("train.yaml", run_dir=work / "run")
    (work / "new.csv").write_text("age,town\n20,Bern\n")
    with pytest.raises(InputError, match="has no column 'colour'") as caught:
        netspec.predict("run", "new.csv")
    assert all("spec.yaml" not in str(problem.location) for problem in caught.value.problems)
