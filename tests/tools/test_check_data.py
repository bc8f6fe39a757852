"""`netspec check` and the data: paths that do not exist, and what headers and first samples show."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.errors import InputError, Problem
from netspec.schema.specs.train import TrainSpec
from netspec.tools.checking.check_data import DataSurvey
from netspec.tools.checking.check_data import survey_data as survey_sections
from netspec.tools.specs import load_train
from tests.data.conftest import split_of

ROWS = 5000


def training(folder: Path, train: Mapping[str, Any], shape: list[int], classes: int = 3, name: str = "x") -> Path:
    """Write a training of a small classifier and return its path. `name` is the field that the net reads."""
    import yaml

    flat = [{"name": "flat", "type": "Flatten", "from": name}] if len(shape) > 1 else []
    spec = {
        "netspec": 1,
        "net": {
            "netspec": 1,
            "inputs": {name: {"shape": shape}, "label": {"shape": [], "dtype": "int32"}},
            "layers": [
                *flat,
                {"name": "scores", "type": "Dense", "units": classes, **({} if flat else {"from": name})},
            ],
            "losses": [
                {"type": "SparseCategoricalCrossentropy", "from": ["scores", "label"], "from_logits": True},
            ],
        },
        "data": {"train": {"batch_size": 8, **train}},
        "solver": "Adam",
        "train": {"max_epochs": 1},
    }
    path = folder / "train.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return path


def problem_of(path: Path, **options: Any) -> Problem:
    """The only problem of a spec."""
    with pytest.raises(InputError) as caught:
        netspec.check(path, **options)
    (problem,) = caught.value.problems
    return problem


def survey_data(spec: TrainSpec) -> DataSurvey:
    """Survey the data of a training, and the file with its weights."""
    return survey_sections(spec.data, spec.init_from)


def table(folder: Path, rows: int = ROWS, classes: str = "xyz") -> None:
    """Write a table of two numbers, a color and a class."""
    draw = random.Random(1)
    lines = [
        f"{draw.random():.3f},{draw.random():.3f},{draw.choice(('red', 'green'))},{classes[row % len(classes)]}"
        for row in range(rows)
    ]
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "table.csv").write_text("\n".join(["a,b,color,y", *lines]), encoding="utf-8")


CSV = {"source": "csv", "header": True, "columns": ["a", "b"], "label": "y"}


SOURCES: list[dict[str, Any]] = [
    {**CSV, "path": "data/rows.csv"},
    {"source": "parquet", "path": "data/rows.parquet", "columns": ["a", "b"], "label": "y"},
    {"source": "npz", "path": "data/rows.npz"},
    {"source": "npz", "path": ["data/rows.npz"]},
    {"source": "npy", "files": {"x": "data/rows.npy"}},
    {"source": "hdf5", "path": "data/rows.h5"},
    {"source": "idx", "images": "data/rows.idx", "labels": "."},
    {"source": "mnist", "path": "data/rows", "split": "train"},
    {"source": "cifar_binary", "path": "data/rows.bin"},
    {"source": "image_folder", "path": "data/rows"},
    {"source": "image_folder", "path": ".", "list": "data/rows.txt"},
    {"source": "audio", "path": "data/rows", "sampling_rate": 8000},
    {"source": "documents", "path": "data/rows", "tokenizer": "words"},
    {"source": "text", "path": "data/rows.txt", "tokenizer": "characters", "length": 8},
    {"source": "lmdb", "path": "data/rows"},
    {"source": "segmentation_folder", "path": "data/rows"},
    {"source": "detection_folder", "path": ".", "annotations": "data/rows.json"},
]


@pytest.mark.parametrize("source", SOURCES, ids=[f"{number}-{each['source']}" for number, each in enumerate(SOURCES)])
def test_a_path_that_does_not_exist_is_an_error_of_every_source(source: dict[str, Any], tmp_path: Path) -> None:
    path = training(tmp_path, source, [2])
    spec = load_train(path)
    (problem,) = [each for each in survey_data(spec).problems if "does not exist" in each.message]
    assert problem.message.startswith("`data/rows")
    assert problem.location is not None
    assert problem.location.file == str(path)
    assert problem.location.text[problem.location.column - 1 :].startswith("data/rows")
    assert problem.path.startswith("data.train.")
    assert problem.expected == "a file or folder, relative to the folder of train.yaml"
    assert problem.got == f"nothing at {tmp_path / problem.message.split('`')[1]}"


EMPTY: list[tuple[dict[str, Any], str]] = [
    ({"source": "mnist", "path": "here", "split": "train"}, "path"),
    ({"source": "fashion_mnist", "path": "here", "split": "train", "download": False}, "path"),
    ({"source": "cifar10", "path": "here", "split": "train", "download": False}, "path"),
    ({"source": "cifar_binary", "path": "here", "split": "train"}, "path"),
    ({"source": "image_folder", "path": "here"}, "path"),
    ({"source": "image_folder", "path": "here", "size": 8}, "path"),
    ({"source": "audio", "path": "here", "sampling_rate": 8000}, "path"),
    ({"source": "documents", "path": "here", "tokenizer": "words"}, "path"),
    ({"source": "documents", "path": "here", "documents": "lines", "tokenizer": "words"}, "path"),
    ({"source": "text", "path": "here", "tokenizer": "characters", "length": 8}, "path"),
    ({"source": "lmdb", "path": "here"}, "path"),
    ({"source": "segmentation_folder", "path": "here"}, "path"),
    ({"source": "detection_folder", "path": "here"}, "path"),
    ({"source": "detection_folder", "path": "here", "size": 8}, "path"),
    ({"source": "csv", "path": "here", "header": True}, "path"),
    ({"source": "parquet", "path": "here"}, "path"),
    ({"source": "npz", "path": "here"}, "path"),
    ({"source": "npy", "files": {"x": "here"}}, "files.x"),
    ({"source": "hdf5", "path": "here"}, "path"),
    ({"source": "idx", "images": "here", "labels": "here"}, "labels"),
]
"""A source of each kind, and the field whose folder is empty."""

OTHER_FILES: list[tuple[dict[str, Any], str]] = [
    ({"source": "fashion_mnist", "path": "here/rows.foo", "split": "train"}, "path"),
    ({"source": "cifar100", "path": "here/rows.foo", "split": "train"}, "path"),
    ({"source": "cifar_binary", "path": "here/rows.foo"}, "path"),
    ({"source": "image_folder", "path": "."}, "path"),
    ({"source": "image_folder", "path": ".", "list": "here/rows.foo"}, "list"),
    ({"source": "audio", "path": ".", "sampling_rate": 8000}, "path"),
    ({"source": "documents", "path": ".", "tokenizer": "words"}, "path"),
    ({"source": "documents", "path": ["here/rows.foo"], "documents": "lines", "classes": ["a", "b"],
      "tokenizer": "words"}, "classes"),
    ({"source": "text", "path": "here", "tokenizer": "characters", "length": 8}, "path"),
    ({"source": "text", "path": "here/bytes.bin", "tokenizer": "characters", "length": 8}, "data.train"),
    ({"source": "lmdb", "path": "here/rows.foo"}, "path"),
    ({"source": "segmentation_folder", "path": ".", "images": "here", "masks": ".", "mask_suffix": "_m"}, "path"),
    ({"source": "detection_folder", "path": "here"}, "path"),
    ({"source": "detection_folder", "path": ".", "annotations": "here/rows.foo", "format": "coco"}, "annotations"),
    ({"source": "csv", "path": "here/bytes.bin", "header": True}, "data.train"),
    ({"source": "parquet", "path": "here/rows.foo"}, "path"),
    ({"source": "npz", "path": "here/rows.foo"}, "path"),
    ({"source": "npy", "files": {"x": ["here/rows.foo"]}}, "files.x"),
    ({"source": "hdf5", "path": "here/rows.foo"}, "path"),
    ({"source": "idx", "images": "here/rows.foo", "labels": "here/rows.foo"}, "labels"),
]  # fmt: skip
"""The same for files of another kind: a text, and bytes that are no text, which are located in their own file."""


def located(source: dict[str, Any], folder: Path) -> set[str]:
    """Return the fields of the split that are reported; each problem must have a location in the training file."""
    path = training(folder, source, [2])
    problems = survey_data(load_train(path)).problems
    in_spec = [each for each in problems if each.location is not None and each.location.file == str(path)]
    noted = [each for each in problems if any(str(path) in note for note in each.notes)]
    assert len(in_spec) + len(noted) == len(problems)
    return {each.path.removeprefix("data.train.") for each in problems}


@pytest.mark.parametrize(("source", "field"), EMPTY, ids=[f"{n}-{each['source']}" for n, (each, _) in enumerate(EMPTY)])
def test_an_empty_folder_is_an_error_of_every_source(source: dict[str, Any], field: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert field in located(source, tmp_path)


@pytest.mark.parametrize(
    ("source", "field"), OTHER_FILES, ids=[f"{n}-{each['source']}" for n, (each, _) in enumerate(OTHER_FILES)]
)
def test_a_file_of_another_kind_is_an_error_of_every_source(source: dict[str, Any], field: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "rows.foo").write_text("nothing useful\n", encoding="utf-8")
    (tmp_path / "here" / "bytes.bin").write_bytes(bytes(range(128, 256)))
    assert field in located(source, tmp_path)


@pytest.mark.parametrize("way", ["stratify", "group", "time"])
def test_a_column_to_divide_by_must_exist(way: str, tmp_path: Path) -> None:
    table(tmp_path, 100)
    split = {"validation": 0.1, "test": 0.1, way: "colour"}
    problem = problem_of(training(tmp_path, {**CSV, "path": "data/table.csv", "split": split}, [2], name="features"))
    assert problem.message == "the source has no field or column `colour` to divide it by"
    assert (problem.path, problem.hint) == (f"data.train.split.{way}", "did you mean `color`?")
    assert problem.location is not None


DAYS = [f"2026-01-{day:02}" for day in range(1, 11)]


@pytest.mark.parametrize(("days", "windows", "message", "got"), [
    ([*DAYS[:3], "", *DAYS[4:]], None, "1 sample of 10 has no time", "none in days.csv, line 5"),
    ([*DAYS[:3], "n/a", *DAYS[4:]], None, "1 sample of 10 has no time", "none in days.csv, line 5"),
    ([*DAYS[:3], "soon", "later", *DAYS[5:]], None, "not all values are numbers or dates",
     "later, soon; the first in days.csv, line 5"),
    (DAYS[:1] * 10, None, "no sample is left for validation data", "10 samples with 1 value of `day`"),
    ([*DAYS[:4], DAYS[2], *DAYS[5:]], {"length": 2, "horizon": 1},
     "the rows of days.csv are not in chronological order", "row 5: 2026-01-03 after 2026-01-04"),
])  # fmt: skip
def test_times_that_cannot_divide_a_table(
    days: list[str], windows: Any, message: str, got: str, tmp_path: Path
) -> None:
    (tmp_path / "days.csv").write_text("day,a,y\n" + "".join(f"{day},{n},{n % 2}\n" for n, day in enumerate(days)))
    source = {
        "source": "csv", "path": "days.csv", "header": True, "columns": ["a"], "label": "y",
        "split": {"validation": 0.2, "time": "day"}, **({} if windows is None else {"windows": windows}),
    }  # fmt: skip
    path = training(tmp_path, source, [1] if windows is None else [2, 1], name="features")
    (problem,) = survey_data(load_train(path)).problems
    assert (problem.message.replace(f"{tmp_path}/", ""), problem.got) == (message, got)
    is_part = message.startswith("no sample")
    assert problem.path == ("data.train.split" if is_part else "data.train.split.time")
    assert problem.location is not None
    assert problem.location.file == str(path)
    assert problem.location.text.strip().startswith("validation:" if is_part else "time: day")


def test_times_that_cannot_divide_a_list(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,label,date\na.png,a,2026-01-01\na.png,b,soon\n")
    split = {"validation": 0.2, "time": "date"}
    source = {"source": "image_folder", "path": ".", "list": "list.csv", "size": [8, 8], "split": split}
    (problem,) = survey_data(load_train(training(tmp_path, source, [3, 8, 8], name="image"))).problems
    assert (problem.path, problem.got) == ("data.train.split.time", "soon; the first in list.csv, line 3")


@pytest.mark.parametrize("column", ["patient", "pateint"])
def test_a_column_of_a_list_to_divide_by_must_exist(column: str, tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(10)]
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = "".join(f"{name},{'abc'[number % 3]},P{number % 5}\n" for number, name in enumerate(names))
    (tmp_path / "list.csv").write_text(f"path,label,patient\n{rows}")
    split = {"validation": 0.2, "group": column}
    source = {"source": "image_folder", "path": ".", "list": "list.csv", "size": [8, 8], "split": split}
    problems = survey_data(load_train(training(tmp_path, source, [3, 8, 8], name="image"))).problems
    assert [problem.path for problem in problems] == ["data.train.split.group"] * (column == "pateint")
    assert all(problem.location is not None and problem.location.line > 1 for problem in problems)


def test_a_field_to_divide_by_must_exist(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros((30, 2), np.float32), label=np.arange(30) % 3)
    source = {"source": "npz", "path": "rows.npz", "split": {"test": 0.2, "stratify": "labels"}}
    assert problem_of(training(tmp_path, source, [2])).path == "data.train.split.stratify"
    assert not survey_data(load_train(training(tmp_path, {**source, "split": {"test": 0.2, "stratify": "label"}}, [2]))
                           ).problems  # fmt: skip


def test_the_column_of_several_series_must_exist(tmp_path: Path) -> None:
    table(tmp_path, 100)
    windows = {"length": 4, "horizon": 1, "group": "colour"}
    source = {**CSV, "path": "data/table.csv", "columns": ["a"], "label": "b", "windows": windows}
    assert located(source, tmp_path) == {"windows.group"}


def test_wrong_fields_and_wrong_data_are_reported_together(tmp_path: Path) -> None:
    table(tmp_path, 100)
    path = training(tmp_path, {**CSV, "path": "data/table.csv", "columns": ["a", "bb"]}, [2])
    text = path.read_text(encoding="utf-8").replace("units", "unts").replace("solver: Adam", "solver: Adm")
    path.write_text(text + "init_from: {file: old.h5}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        netspec.check(path)
    problems = [problem.message for problem in caught.value.problems]
    assert problems == [
        "`Dense` has no field `unts`", f"{tmp_path}/data/table.csv has no column 'bb'", "unknown solver 'Adm'",
        "`old.h5` does not exist",
    ]  # fmt: skip
    with pytest.raises(InputError) as caught:
        netspec.check(path, data=False)
    assert len(caught.value.problems) == 2


def test_a_path_of_an_unknown_variable_is_not_looked_for(tmp_path: Path) -> None:
    path = training(tmp_path, {**CSV, "path": "${folder}/table.csv"}, [2])
    assert problem_of(path).message == "no variable `folder` is declared"


def test_downloads_and_generated_samples_need_no_files(tmp_path: Path) -> None:
    fields = {"x": {"shape": [2]}, "label": {"classes": 3}}
    assert netspec.check(training(tmp_path, {"source": "synthetic", "samples": 9, "fields": fields}, [2])).data == ""
    sets = {"source": "cifar10", "split": "train", "path": "sets"}
    assert not survey_data(load_train(training(tmp_path, sets, [3, 32, 32], 10, "image"))).problems


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("data/tabel.csv", "did you mean `data/table.csv`?"),
        ("dta/table.csv", "did you mean `data/table.csv`?"),
        ("elsewhere/cifar-10-batches-bin", "`netspec data get cifar10` downloads the dataset, and"),
        ("made/scores.csv", "make_scores.py next to the spec mentions `scores.csv`: run it first"),
        ("kept/rows.bin", "see README.md next to the spec, which mentions `rows.bin`"),
    ],
)
def test_a_missing_path_is_explained(written: str, hint: str, tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "make_scores.py").write_text("open('made/scores.csv', 'w')", encoding="utf-8")
    (tmp_path / "README.md").write_text("Put rows.bin, of 3 GB, into `kept`.", encoding="utf-8")
    problem = problem_of(training(tmp_path, {**CSV, "path": written}, [2]))
    assert (problem.hint or "").replace("python -m ", "").startswith(hint)


def test_a_path_from_the_current_folder_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    table(tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    problem = problem_of(training(tmp_path / "project", {**CSV, "path": "project/data/table.csv"}, [2]))
    assert problem.hint == "it exists in the current folder: from the spec's folder it is `data/table.csv`"


def test_paths_of_transforms_tokenizers_and_weights_must_exist(tmp_path: Path) -> None:
    table(tmp_path)
    text = {"type": "text", "tokenizer": {"type": "tokenizer_json", "path": "tok.json"}, "length": 4}
    source = {**CSV, "path": "data/table.csv", "columns": {"a": "numeric", "color": text}}
    path = training(tmp_path, {**source, "transforms": [{"type": "MeanImage", "file": "mean.npy"}]}, [1])
    path.write_text(path.read_text(encoding="utf-8") + "init_from: {file: old.h5}\n", encoding="utf-8")
    paths = {problem.path for problem in survey_data(load_train(path)).problems if "not exist" in problem.message}
    assert paths == {
        "init_from.file", "data.train.columns.color.tokenizer.path", "data.train.transforms.0.file",
    }  # fmt: skip


def test_splits_must_have_the_same_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or not to be")
    texts = {"source": "text", "path": str(tmp_path / "a.txt"), "length": 4, "batch_size": 1}
    other = {**texts, "tokenizer": {"type": "characters", "unknown": True}}
    spec = load_train(training(tmp_path, {**texts, "tokenizer": "characters"}, [4]), {"data.test": other})
    (problem,) = survey_data(spec).problems
    assert (problem.path, problem.got) == ("data.test.tokenizer", "a different `unknown`")


def test_columns_are_compared_with_the_net(tmp_path: Path) -> None:
    table(tmp_path)
    problem = problem_of(training(tmp_path, {**CSV, "path": "data/table.csv"}, [3], name="features"))
    assert problem.message == "`features` has a different shape from the net's input `features`"
    assert problem.got == "float32 of shape [2] from the source"


def test_a_problem_of_all_parts_of_a_source_is_reported_once(tmp_path: Path) -> None:
    table(tmp_path)
    source = {**CSV, "path": "data/table.csv", "split": {"validation": 0.2, "test": 0.2}}
    assert "different shape" in problem_of(training(tmp_path, source, [25], name="features")).message


def test_a_missing_target_column_is_an_error(tmp_path: Path) -> None:
    table(tmp_path)
    path = training(tmp_path, {**CSV, "path": "data/table.csv", "label": "colour"}, [2], name="features")
    problem = problem_of(path)
    assert "has no column 'colour'" in problem.message
    assert problem.path == "data.train.label"
    assert problem.hint == "did you mean `color`?"


def test_classes_of_a_label_column_are_counted(tmp_path: Path) -> None:
    table(tmp_path, rows=20)
    path = training(tmp_path, {**CSV, "path": "data/table.csv"}, [2], classes=5, name="features")
    report = netspec.check(path)
    assert [warning.message for warning in report.warnings] == ["`scores` has 5 scores, but `label` has only 3 classes"]
    assert report.data == ""


def test_of_a_long_table_only_the_first_rows_are_read(tmp_path: Path) -> None:
    table(tmp_path)
    path = training(tmp_path, {**CSV, "path": "data/table.csv"}, [2], classes=2, name="features")
    with pytest.raises(InputError) as caught:
        netspec.check(path)
    assert [each.message for each in caught.value.problems] == ["the data has 3 classes or more, more than the net"]
    # There may be more classes after the first rows, so more scores are fine.
    assert not netspec.check(training(tmp_path, {**CSV, "path": "data/table.csv"}, [2], 9, "features")).warnings


def test_one_hot_columns_of_a_long_table_are_not_counted(tmp_path: Path) -> None:
    table(tmp_path)
    source = {**CSV, "path": "data/table.csv", "columns": {"a": "numeric", "color": "categorical"}}
    netspec.check(training(tmp_path, source, [99], name="features"))
    table(tmp_path, rows=50)
    problem = problem_of(training(tmp_path, source, [99], name="features"))
    assert problem.got == "float32 of shape [3] from the source"


def test_test_data_uses_the_categories_of_the_training_data(tmp_path: Path) -> None:
    table(tmp_path, rows=50)
    (tmp_path / "test.csv").write_text("a,b,color,y\n0.1,0.2,red,x\n", encoding="utf-8")
    source = {**CSV, "path": "data/table.csv", "columns": {"a": "numeric", "color": "categorical"}}
    path = training(tmp_path, source, [3], name="features")
    overrides = [f"data.test={{source: csv, header: true, path: {tmp_path}/test.csv, label: y, batch_size: 1}}"]
    columns = "data.test.columns={a: numeric, color: categorical}"
    assert netspec.check(path, overrides=[*overrides, columns]).warnings == ()


def test_parquet_is_surveyed_by_its_first_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {"a": np.arange(ROWS) / 7, "b": np.arange(ROWS) / 9, "y": np.arange(ROWS) % 4}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    source = {"source": "parquet", "path": "t.parquet", "label": "y"}
    report = netspec.check(training(tmp_path, source, [2], classes=4, name="features"))
    assert report.data == "the first 4,096 rows of t.parquet"
    fewer = problem_of(training(tmp_path, source, [2], name="features"))
    assert fewer.message == "the data has 4 classes or more, more than the net"
    assert problem_of(training(tmp_path, source, [3], name="features")).got == "float32 of shape [2] from the source"


def photos(folder: Path, size: tuple[int, int] = (12, 10), count: int = 30) -> None:
    """Write gray images into three class folders."""
    for name in ("ant", "bee", "cat"):
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.new("L", size).save(folder / "photos" / name / f"{number}.png")


def test_images_are_compared_with_the_net(tmp_path: Path) -> None:
    photos(tmp_path)
    source = {"source": "image_folder", "path": "photos", "transforms": [{"type": "Rescaling", "scale": 0.01}]}
    problem = problem_of(training(tmp_path, source, [1, 10, 12], name="image"))
    assert problem.got == "float32 of shape [3, 10, 12] from the source"
    report = netspec.check(training(tmp_path, source, [3, 10, 12], 4, name="image"))
    assert [each.message for each in report.warnings] == ["`scores` has 4 scores, but `label` has only 3 classes"]
    assert report.data == "the headers of 90 images of photos"


@pytest.mark.parametrize("count", [1, 30])
def test_too_few_scores_for_the_class_folders_get_the_number_of_classes_as_hint(count: int, tmp_path: Path) -> None:
    photos(tmp_path, count=count)
    source = {"source": "image_folder", "path": "photos", "transforms": [{"type": "Rescaling", "scale": 0.01}]}
    path = training(tmp_path, source, [3, 10, 12], 2, name="image")
    assert problem_of(path).hint == "set `units: 3` in `scores`"
    with pytest.raises(InputError) as caught:
        netspec.train(path)
    (problem,) = caught.value.problems
    assert "out of range" in problem.message
    assert problem.hint == "set `units: 3` in `scores`"


def truncated(file: Path, size: int) -> None:
    """Write the first bytes of an image."""
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12)).astype(np.uint8)
    Image.fromarray(pixels).save(file)
    file.write_bytes(file.read_bytes()[:size])


def test_images_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "photos" / "bee" / "note.jpg").write_text("not an image")
    truncated(tmp_path / "photos" / "cat" / "half.jpg", 400)
    source = {"source": "image_folder", "path": "photos", "size": [10, 12]}
    source["transforms"] = [{"type": "Rescaling", "scale": 0.01}]
    with pytest.raises(InputError) as caught:
        netspec.check(training(tmp_path, source, [3, 10, 12], name="image"))
    assert [(each.message.split("photos/")[1], str(each.got).split(" (")[0]) for each in caught.value.problems] == [
        ("bee/note.jpg cannot be read", "a file of another kind, or a damaged one"),
        ("cat/half.jpg cannot be read", "image file is truncated"),
    ]
    assert all(each.location is not None for each in caught.value.problems)


def test_images_that_are_left_out_are_a_warning(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "photos" / "bee" / "note.jpg").write_text("not an image")
    source = {"source": "image_folder", "path": "photos", "size": [10, 12], "on_error": "skip"}
    source["transforms"] = [{"type": "Rescaling", "scale": 0.01}]
    (warning,) = netspec.check(training(tmp_path, source, [3, 10, 12], name="image")).warnings
    assert warning.message == "at least 1 sample cannot be read, and will be left out"
    assert warning.got is not None
    assert warning.got.endswith("bee/note.jpg cannot be read: a file of another kind, or a damaged one")
    assert warning.path == "data.train.on_error"


def test_images_with_bytes_after_their_end_are_intact(tmp_path: Path) -> None:
    photos(tmp_path)
    for number in range(3):
        with (tmp_path / "photos" / "ant" / f"{number}.png").open("ab") as file:
            file.write(bytes(500))
    for name in ("a.bmp", "b.webp", "c.jpg"):
        Image.new("RGB", (12, 10)).save(tmp_path / "photos" / "bee" / name)
    source = {"source": "image_folder", "path": "photos", "transforms": [{"type": "Rescaling", "scale": 0.01}]}
    assert netspec.check(training(tmp_path, source, [3, 10, 12], name="image")).warnings == ()


@pytest.mark.parametrize(("name", "kept"), [("a.png", 60), ("b.bmp", 1100), ("c.webp", 40), ("d.jpg", 400)])
def test_truncated_images_of_all_formats_are_found(name: str, kept: int, tmp_path: Path) -> None:
    photos(tmp_path, count=1)
    truncated(tmp_path / "photos" / "ant" / name, kept)
    source = {"source": "image_folder", "path": "photos", "size": [10, 12]}
    problem = problem_of(training(tmp_path, source, [3, 10, 12], name="image"))
    assert problem.message.endswith(f"ant/{name} cannot be read")


def test_truncated_images_and_masks_are_errors(tmp_path: Path) -> None:
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            Image.new("L", (12, 10)).save(tmp_path / folder / f"{number}.png")
        truncated(tmp_path / folder / f"{folder == 'masks':d}.png", 60)
    split = {"source": "segmentation_folder", "path": ".", "size": [10, 12], "batch_size": 2}
    with pytest.raises(InputError) as caught:
        split_of(str(tmp_path / "train.yaml"), **split).survey()
    messages = [each.message.rsplit("/", 2)[1:] for each in caught.value.problems]
    assert messages == [["images", "0.png cannot be read"], ["masks", "1.png cannot be read"]]


def test_images_of_several_sizes_are_reported(tmp_path: Path) -> None:
    photos(tmp_path, count=2)
    Image.new("L", (40, 40)).save(tmp_path / "photos" / "ant" / "large.png")
    source = {"source": "image_folder", "path": "photos", "transforms": [{"type": "Rescaling", "scale": 0.01}]}
    problem = problem_of(training(tmp_path, source, [3, 10, 12], name="image"))
    assert problem.message == "the samples of `image` differ in size"
    assert (problem.hint or "").startswith("set `size: [10, 12]` in the source, or add a transform")
    assert problem.notes[0].endswith("/photos/ant/large.png is 40 × 40")


def test_resizing_is_no_fix_for_another_number_of_channels(tmp_path: Path) -> None:
    photos(tmp_path, count=2)
    source = {"source": "image_folder", "path": "photos", "channels": 1, "size": [10, 12]}
    problem = problem_of(training(tmp_path, source, [3, 10, 12], name="image"))
    assert problem.hint == "declare `image: {shape: [1, 10, 12]}` in the net, or change the data"


def test_a_class_folder_without_images_is_an_error(tmp_path: Path) -> None:
    photos(tmp_path, count=1)
    (tmp_path / "photos" / "dog").mkdir()
    problem = problem_of(training(tmp_path, {"source": "image_folder", "path": "photos"}, [3, 10, 12], name="image"))
    assert problem.message.endswith("dog holds no image")


@pytest.mark.parametrize("kind", ["npz", "npy", "hdf5"])
def test_arrays_are_compared_with_the_net(kind: str, tmp_path: Path) -> None:
    arrays = {"x": np.zeros((20, 7), np.float32), "label": (np.arange(20) % 6).astype(np.int32)}
    source: dict[str, Any] = {"source": kind, "path": f"d.{kind}"}
    if kind == "npz":
        np.savez(tmp_path / "d.npz", x=arrays["x"], label=arrays["label"])
    elif kind == "npy":
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
        source = {"source": "npy", "files": {name: f"{name}.npy" for name in arrays}}
    else:
        import h5py

        with h5py.File(tmp_path / "d.hdf5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
    assert problem_of(training(tmp_path, source, [8])).got == "float32 of shape [7] from the source"
    fewer = problem_of(training(tmp_path, source, [7]))
    assert fewer.message == "the data has 6 classes or more, more than the net"


def test_a_survey_does_not_read_the_arrays_of_a_large_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((20, 7), np.float32), label=np.zeros(20, np.int32))
    monkeypatch.setattr("netspec.data.surveys.QUICK", 0)
    monkeypatch.setattr("netspec.data.readers.npz.open_npz_files", None)
    report = netspec.check(training(tmp_path, {"source": "npz", "path": "d.npz"}, [7]))
    assert report.data == "the headers of the arrays"


def test_held_out_samples_are_checked_like_training_samples(tmp_path: Path) -> None:
    table(tmp_path)
    source = {**CSV, "path": "data/table.csv", "split": {"validation": 0.2, "stratify": "y"}}
    assert netspec.check(training(tmp_path, source, [2], name="features")).warnings == ()


def test_the_part_that_was_read_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from netspec.cli import main

    table(tmp_path)
    path = training(tmp_path, {**CSV, "path": "data/table.csv"}, [2], name="features")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == (
        f"OK: {path} (1 layer, 9 parameters; data read: the first 4,096 rows of table.csv)\n"
    )
