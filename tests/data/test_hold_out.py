"""`split` as a mapping: the parts of every kind of source are disjoint, and learn only from the training part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import netspec
from netspec.data.base import FieldType, SampleKeys, Source, Survey, Transform
from netspec.data.imaging.base import ImageTransform
from netspec.data.loader import Loader, open_loader
from netspec.data.pipeline import TransformPipeline
from netspec.data.stratified_groups import assign_groups
from netspec.data.transforms.mixing import Mixing
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.schema.specs.data import TRANSFORMS, DataSpec
from netspec.tools.checking.check_training import DeclaredDataset
from tests.data.conftest import split_of
from tests.data.test_lmdb import datum, noise, write
from tests.data.test_riff import encoded, form, wav

COUNT = 40
LABELS = np.arange(COUNT) % 2


def parts_of(split: Source) -> dict[str, Source]:
    return {name: part for name, part in DataSpec(train=split).splits().items() if isinstance(part, Source)}


def _npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "a.npz", x=np.arange(COUNT, dtype=np.float32), label=LABELS.astype(np.int32))
    return {"source": "npz", "path": "a.npz"}


def _npy(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", np.arange(COUNT, dtype=np.float32))
    np.save(folder / "label.npy", LABELS.astype(np.int32))
    return {"source": "npy", "files": {"x": "x.npy", "label": "label.npy"}}


def _hdf5(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"], file["label"] = np.arange(COUNT, dtype=np.float32), LABELS.astype(np.int32)
    return {"source": "hdf5", "path": "a.h5"}


def _lmdb(folder: Path) -> dict[str, Any]:
    values = {b"%05d" % index: datum(noise(1, 2, 2, seed=index), int(LABELS[index])) for index in range(COUNT)}
    write(folder / "set", values)
    return {"source": "lmdb", "path": "set"}


def _csv(folder: Path) -> dict[str, Any]:
    rows = "\n".join(f"{index},{'ab'[LABELS[index]]}" for index in range(COUNT))
    (folder / "a.csv").write_text(f"x,kind\n{rows}\n")
    return {"source": "csv", "path": "a.csv", "header": True, "label": "kind"}


def _parquet(folder: Path) -> dict[str, Any]:
    table = pa.table({"x": np.arange(COUNT, dtype=np.float32), "kind": ["ab"[label] for label in LABELS]})
    parquet.write_table(table, folder / "a.parquet", row_group_size=7)
    return {"source": "parquet", "path": "a.parquet", "label": "kind"}


def _images(folder: Path) -> dict[str, Any]:
    for index in range(COUNT):
        path = folder / "images" / "ab"[LABELS[index]] / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(3, 4, 3, seed=index)).save(path)
    return {"source": "image_folder", "path": "images", "size": [3, 4]}


def _audio(folder: Path) -> dict[str, Any]:
    for index in range(COUNT):
        path = folder / "sounds" / "ab"[LABELS[index]] / f"{index:02}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wav(form(1, 16, 1), encoded(np.full((1, 4), index / COUNT), 1, 16)))
    return {
        "source": "audio",
        "path": "sounds",
        "sampling_rate": 8000,
        "transforms": [{"type": "Padding", "length": 4}],
    }


WORDS = {"type": "words", "unknown": True, "padding": True}


def _files(folder: Path) -> dict[str, Any]:
    for index in range(COUNT):
        path = folder / "texts" / "ab"[LABELS[index]] / f"{index:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the word{index}")
    return {
        "source": "documents",
        "path": "texts",
        "tokenizer": WORDS,
        "transforms": [{"type": "Padding", "length": 3}],
    }


def _lines(folder: Path) -> dict[str, Any]:
    for name in "ab":
        (folder / f"{name}.txt").write_text("".join(f"the {name}{index}\n" for index in range(COUNT // 2)))
    return {**_files(folder), "documents": "lines", "path": ["a.txt", "b.txt"], "classes": ["a", "b"]}


def _python(folder: Path) -> dict[str, Any]:
    return {"source": "python"}


def _synthetic(folder: Path) -> dict[str, Any]:
    return {"source": "synthetic", "samples": COUNT, "fields": {"x": {"shape": [2]}, "label": {"classes": 2}}}


SOURCES = (_npz, _npy, _hdf5, _lmdb, _csv, _parquet, _images, _audio, _files, _lines, _python, _synthetic)


def opened(folder: Path, fields: dict[str, Any], **hold_out: Any) -> dict[str, Loader]:
    """Return the loaders of the parts; those after the first use what the training part has learned."""
    split = split_of(str(folder / "train.yaml"), **{"batch_size": 7, **fields}, split=hold_out)
    if fields["source"] == "python":
        split = split.with_samples({"x": np.arange(COUNT, dtype=np.float32), "label": LABELS.astype(np.int32)})  # type: ignore[attr-defined]  # a Python source
    loaders: dict[str, Loader] = {}
    for name, part in parts_of(split).items():
        loaders[name] = open_loader(part, seed=5, learned=loaders["train"].learned if loaders else None)
    return loaders


def origins(loader: Loader) -> list[Any]:
    """Return the number of each sample in the source, from 1, or its file."""
    return [loader.identify(int(index))[1] for batch in loader.one_pass() for index in batch.indices]


def described(loader: Loader) -> list[str]:
    """Return the origin of each sample, as in messages."""
    return [loader._pipeline.describe(int(index)) for batch in loader.one_pass() for index in batch.indices]


def labels(loader: Loader) -> list[int]:
    return [int(label) for batch in loader.one_pass() for label in batch.inputs["label"]]


@pytest.mark.parametrize("source", SOURCES, ids=lambda make: make.__name__.strip("_"))
def test_parts_of_every_source_are_disjoint_and_complete(source: Callable[[Path], Any], tmp_path: Path) -> None:
    fields = source(tmp_path)
    parts = opened(tmp_path, fields, validation=0.25, test=0.15, stratify="label")
    assert {name: loader.samples for name, loader in parts.items()} == {"train": 24, "validation": 10, "test": 6}
    assert len({origin for loader in parts.values() for origin in described(loader)}) == COUNT
    class_ones = sum(sum(labels(loader)) for loader in parts.values())
    for loader in parts.values():
        assert sum(labels(loader)) == pytest.approx(loader.samples * class_ones / COUNT, abs=1)
    reopened = opened(tmp_path, fields, validation=0.25, test=0.15, stratify="label")
    other = opened(tmp_path, fields, validation=0.25, test=0.15, stratify="label", seed=2)
    for name, loader in parts.items():
        assert described(loader) == described(reopened[name])
        assert loader.state()["data"] == reopened[name].state()["data"]
        assert described(loader) != described(other[name])
        assert loader.state()["data"] != other[name].state()["data"]


def test_values_are_learned_only_from_the_training_part(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,kind\n" + "".join(f"{index},{'ab'[index % 2]}\n" for index in range(20)))
    fields = {
        "source": "csv", "path": "a.csv", "header": True, "label": "kind",
        "columns": {"x": {"type": "numeric", "normalization": "standard"}},
    }  # fmt: skip
    parts = opened(tmp_path, fields, test=0.5)
    rows = np.array(origins(parts["train"])) - 1
    assert parts["train"].learned.source["x"]["offset"] == pytest.approx([rows.mean()])
    features = np.concatenate([batch.inputs["features"] for batch in parts["train"].one_pass()])
    assert features.mean() == pytest.approx(0, abs=1e-6)
    test = np.concatenate([batch.inputs["features"] for batch in parts["test"].one_pass()])[:, 0]
    expected = (np.array(origins(parts["test"])) - 1 - rows.mean()) / rows.std()
    np.testing.assert_allclose(test, expected, rtol=1e-5)


@pytest.mark.parametrize("source", [_files, _lines])
def test_vocabularies_are_learned_only_from_the_training_part(source: Callable[[Path], Any], tmp_path: Path) -> None:
    parts = opened(tmp_path, source(tmp_path), test=0.25)
    vocabulary = parts["train"].learned.source["tokenizer"]["vocabulary"]
    assert len(vocabulary) == 1 + 30  # `the`, and the words of 30 documents
    tokens = np.concatenate([batch.inputs["text"] for batch in parts["test"].one_pass()])
    assert (tokens[:, 1] == 1).all()  # unknown


def test_transforms_learn_only_from_the_training_part(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(COUNT, dtype=np.float32)[:, None], label=LABELS.astype(np.int32))
    fields = {"source": "npz", "path": "a.npz", "transforms": [{"type": "Normalization", "adapt": True}]}
    parts = opened(tmp_path, fields, validation=0.5)
    [values] = parts["train"].learned.values.values()
    assert np.ravel(values["mean"]) == pytest.approx(np.mean(origins(parts["train"])) - 1)
    train = np.concatenate([batch.inputs["x"] for batch in parts["train"].one_pass()])
    assert train.mean() == pytest.approx(0, abs=1e-6)


def test_groups_stay_together(tmp_path: Path) -> None:
    customers = np.repeat([f"c{number}" for number in range(10)], 4)
    (tmp_path / "a.csv").write_text(
        "who,x\n" + "".join(f"{customer},{index}\n" for index, customer in enumerate(customers))
    )
    fields = {"source": "csv", "path": "a.csv", "header": True, "columns": ["x"]}
    parts = opened(tmp_path, fields, validation=0.2, test=0.2, group="who")
    by_part = {name: {customers[row - 1] for row in origins(loader)} for name, loader in parts.items()}
    assert {name: len(rows) for name, rows in by_part.items()} == {"train": 6, "validation": 2, "test": 2}
    assert len(set.union(*by_part.values())) == 10


@pytest.mark.parametrize(
    ("form", "options", "columns"),
    [
        ("{0}", {}, {}),
        ("2026-01-{1:02}", {}, {}),
        ("{1:02}.01.2026", {"time_format": "%d.%m.%Y"}, {}),
        ("{1:02}.01.2026", {}, {"day": {"type": "date", "format": "%d.%m.%Y"}}),
        ("2026-01-01T{0:02}:00+01:00", {}, {}),
    ],
    ids=["number", "ISO", "format", "declared format", "time zone"],
)
def test_the_last_in_time_are_held_out(
    tmp_path: Path, form: str, options: dict[str, str], columns: dict[str, Any]
) -> None:
    days = np.random.default_rng(0).permutation(20)
    texts = [form.format(day, day + 1) for day in days]
    (tmp_path / "a.csv").write_text(
        "day,x\n" + "".join(f"{text},{day}\n" for text, day in zip(texts, days, strict=True))
    )
    fields = {"source": "csv", "path": "a.csv", "header": True, "columns": {"x": "numeric", **columns}}
    parts = opened(tmp_path, fields, validation=0.2, test=0.1, time="day", **options)
    days_by_part = {name: sorted(days[row - 1] for row in origins(loader)) for name, loader in parts.items()}
    assert days_by_part == {"train": [*range(14)], "validation": [14, 15, 16, 17], "test": [18, 19]}


def test_parquet_files_are_divided_by_their_dates(tmp_path: Path) -> None:
    days = np.datetime64("2026-01-01") + np.arange(10)[::-1]
    parquet.write_table(pa.table({"day": days, "x": np.arange(10.0)}), tmp_path / "a.parquet", row_group_size=3)
    fields = {"source": "parquet", "path": "a.parquet", "columns": ["x"]}
    assert origins(opened(tmp_path, fields, test=0.2, time="day")["test"]) == [1, 2]


def test_every_sample_is_in_one_fold(tmp_path: Path) -> None:
    fields = _npz(tmp_path)
    folds = [opened(tmp_path, fields, folds=5, fold=fold, test=0.25, stratify="label") for fold in range(5)]
    tests = [origins(parts["test"]) for parts in folds]
    assert all(test == tests[0] for test in tests)
    held_out = [origin for parts in folds for origin in origins(parts["validation"])]
    assert sorted(held_out + tests[0]) == [*range(1, COUNT + 1)]
    assert [parts["validation"].samples for parts in folds] == [6] * 5


PATIENTS = [index // 5 for index in range(COUNT)]


def _list_of(make: Callable[[Path], Any], suffix: str, folder: Path) -> dict[str, Any]:
    """Write a list of the files in class folders; its rows name a patient, who has five files, and a day."""
    fields = make(folder)
    paths = [f"{'ab'[LABELS[index]]}/{index:02}.{suffix}" for index in range(COUNT)]
    rows = [f"P{PATIENTS[i]}, 2026-01-{COUNT // 2 - i % 20:02} ,{paths[i]},{'ab'[LABELS[i]]}" for i in range(COUNT)]
    (folder / "list.csv").write_text("patient,day,path,label\n" + "\n".join(rows) + "\n")
    return {**fields, "list": "list.csv"}


LISTS = ((_images, "png"), (_audio, "wav"))


def files_of(loader: Loader) -> list[int]:
    """Return the number of each sample's file."""
    return sorted(int(Path(str(origin)).stem) for origin in origins(loader))


@pytest.mark.parametrize(("make", "suffix"), LISTS)
def test_files_of_a_list_are_divided_by_its_columns(make: Callable[[Path], Any], suffix: str, tmp_path: Path) -> None:
    fields = _list_of(make, suffix, tmp_path)
    parts = opened(tmp_path, fields, validation=0.25, test=0.125, group="patient")
    by_part = {name: {PATIENTS[file] for file in files_of(loader)} for name, loader in parts.items()}
    assert {name: len(patients) for name, patients in by_part.items()} == {"train": 5, "validation": 2, "test": 1}
    assert len(set.union(*by_part.values())) == 8
    latest = opened(tmp_path, fields, test=0.1, time="day")["test"]
    assert files_of(latest) == [0, 1, 20, 21]
    assert labels(latest) == [0, 1, 0, 1]
    proportional = opened(tmp_path, fields, test=0.2, stratify="patient")["test"]
    assert [PATIENTS[file] for file in files_of(proportional)] == [*range(8)]
    assert opened(tmp_path, fields, test=0.2, stratify="label")["test"].samples == 8


@pytest.mark.parametrize("of_table", [True, False])
def test_whole_groups_are_stratified(tmp_path: Path, of_table: bool) -> None:
    count, rare = 320, [7, 40, 71, 72, 130, 155, 190, 222, 250, 281, 315]
    kinds = ["rare" if index in rare else "ab"[index // 3 % 2] for index in range(count)]
    if of_table:
        rows = "".join(f"{index},P{index // 5},{kind}\n" for index, kind in enumerate(kinds))
        (tmp_path / "a.csv").write_text("x,patient,kind\n" + rows)
        fields = {"source": "csv", "path": "a.csv", "header": True, "label": "kind", "columns": ["x"]}
    else:
        Image.fromarray(noise(3, 4, 3)).save(tmp_path / "a.png")
        rows = "".join(f"P{index // 5},a.png,{kind}\n" for index, kind in enumerate(kinds))
        (tmp_path / "list.csv").write_text("patient,path,label\n" + rows)
        fields = {"source": "image_folder", "path": ".", "list": "list.csv"}
    divided: list[list[str]] = []
    for seed in (1, 2):
        hold_out = {"stratify": "label", "group": "patient", "seed": seed}
        parts = opened(tmp_path, fields, validation=0.15, test=0.15, **hold_out)
        counts = np.array([np.bincount(labels(loader), minlength=3) for loader in parts.values()])
        shares = counts / counts.sum(0)
        np.testing.assert_allclose(shares[:, :2], np.tile([[0.7], [0.15], [0.15]], 2), atol=0.04)
        assert counts[:, 2].tolist() in ([7, 2, 2], [8, 2, 1], [8, 1, 2])
        lines = [[int(text.rsplit("line ")[1].rstrip(")")) for text in described(loader)] for loader in parts.values()]
        patients = [{(line - 2) // 5 for line in of_part} for of_part in lines]
        assert sum(map(len, patients)) == len(set.union(*patients)) == 64
        assert described(opened(tmp_path, fields, validation=0.15, test=0.15, **hold_out)["test"]) == described(
            parts["test"]
        )
        divided.append(described(parts["test"]))
    assert divided[0] != divided[1]


def test_stratified_groups_are_in_one_fold_each(tmp_path: Path) -> None:
    groups, labels = np.arange(120) // 3, (np.arange(120) // 3 % 8 == 0).astype(np.int32)
    np.savez(tmp_path / "a.npz", x=np.arange(120, dtype=np.float32), group=groups, label=labels)
    fields = {"source": "npz", "path": "a.npz"}
    folds = [
        opened(tmp_path, fields, folds=4, fold=fold, test=0.2, stratify="label", group="group") for fold in range(4)
    ]
    tests = [origins(parts["test"]) for parts in folds]
    assert all(test == tests[0] for test in tests)
    held_out = [origins(parts["validation"]) for parts in folds]
    assert sorted(sum(held_out, tests[0])) == [*range(1, 121)]
    assert [int(labels[np.array(rows) - 1].sum()) for rows in (tests[0], *held_out)] == [3] * 5
    assert [len(rows) for rows in (tests[0], *held_out)] == [24] * 5


def test_groups_are_stratified_by_ranges_of_numbers() -> None:
    generator = np.random.default_rng(0)
    groups, values = np.sort(generator.integers(0, 80, 600)), generator.normal(size=600)
    chosen = assign_groups((0.7, 0.15, 0.15), groups, np.arange(80), values)[groups]
    for part, share in enumerate((0.7, 0.15, 0.15)):
        of_part = np.sort(values[chosen == part])
        assert len(of_part) == pytest.approx(600 * share, abs=12)
        assert np.median(of_part) == pytest.approx(np.median(values), abs=0.2)


def test_every_group_of_a_list_is_in_one_fold(tmp_path: Path) -> None:
    fields = _list_of(_images, "png", tmp_path)
    folds = [opened(tmp_path, fields, folds=4, fold=fold, group="patient")["validation"] for fold in range(4)]
    patients = [{PATIENTS[file] for file in files_of(fold)} for fold in folds]
    assert [len(of_fold) for of_fold in patients] == [2, 2, 2, 2]
    assert set.union(*patients) == {*range(8)}


@pytest.mark.parametrize(("list_file", "names"), [
    ("path,patient,class\na/00.png,P1,a\nb/01.png,P2,b\n", "class, label, path, patient"),
    ("path,patient\na/00.png,P1\nb/01.png,P2\n", "path, patient"),
])  # fmt: skip
def test_a_column_that_a_list_lacks_is_reported(list_file: str, names: str, tmp_path: Path) -> None:
    fields = _images(tmp_path)
    (tmp_path / "list.csv").write_text(list_file)
    with pytest.raises(InputError) as error:
        opened(tmp_path, {**fields, "list": "list.csv"}, test=0.5, group="pateint")
    (problem,) = error.value.problems
    assert (problem.path, problem.expected) == ("split.group", f"one of {names}")
    assert problem.hint == "did you mean `patient`?"
    assert problem.location is not None
    assert problem.location.file == str(tmp_path / "train.yaml")


def test_a_part_without_a_class_is_a_warning(tmp_path: Path) -> None:
    rows = [f"{index},{'rare' if index < 2 else 'ab'[index % 2]}" for index in range(40)]
    (tmp_path / "a.csv").write_text("x,kind\n" + "\n".join(rows) + "\n")
    net = {
        "netspec": 1, "inputs": {"features": {"shape": [1]}, "label": {"shape": [], "dtype": "int32"}},
        "layers": [{"type": "Dense", "units": 3, "name": "y"}],
        "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["y", "label"], "from_logits": True}],
    }  # fmt: skip
    hold_out = {"validation": 0.25, "test": 0.25, "stratify": "kind"}
    path = str(tmp_path / "a.csv")
    train = {"source": "csv", "path": path, "header": True, "label": "kind", "batch_size": 4, "split": hold_out}
    netspec.train({**_training(train), "net": net}, run_dir=tmp_path / "run")
    lines = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("warning")] == [
        "warning: the test data has no sample of the class rare"
    ]


def test_running_text_is_divided_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 70 + "b" * 20 + "c" * 10)
    tokenizer = {"type": "characters", "unknown": True}
    fields = {"source": "text", "path": "a.txt", "tokenizer": tokenizer, "length": 4}
    parts = opened(tmp_path, fields, validation=0.2, test=0.1)
    assert parts["train"].learned.source["tokenizer"]["vocabulary"] == "a"
    assert {name: loader.samples for name, loader in parts.items()} == {"train": 17, "validation": 4, "test": 2}
    with pytest.raises(InputError, match="running text is not divided by `group`"):
        load_train(_training({**fields, "split": {"test": 0.1, "group": "label"}}))


def test_stored_parts_can_be_divided() -> None:
    split = split_of(source="mnist", split={"validation": 0.1}, batch_size=100)
    parts = {name: len(part.open()) for name, part in parts_of(split).items()}
    assert parts == {"train": 54_000, "validation": 6_000}
    other = split_of(source="mnist", split={"validation": 0.1, "of": "test"}, batch_size=100)
    assert len(parts_of(other)["validation"].open()) == 1_000


def test_tables_read_by_pages_are_divided_alike(tmp_path: Path) -> None:
    rows = "".join(f"{index},{index % 3}\n" for index in range(5000))
    (tmp_path / "a.csv").write_text("x,label\n" + rows)
    fields = {"source": "csv", "path": "a.csv", "header": True, "label": "label"}
    whole = opened(tmp_path, fields, validation=0.3)
    paged = opened(tmp_path, {**fields, "cache": 0}, validation=0.3)
    for name, loader in whole.items():
        in_pages, other = (
            np.concatenate([batch.inputs["features"] for batch in each.one_pass()]) for each in (loader, paged[name])
        )
        np.testing.assert_array_equal(in_pages, other)
        assert loader.state()["data"] == paged[name].state()["data"]


def test_damaged_rows_are_counted_in_their_own_part(tmp_path: Path) -> None:
    rows = "".join(f"{'?' if index < 10 else index}\n" for index in range(40))
    (tmp_path / "a.csv").write_text("x\n" + rows)
    fields = {"source": "csv", "path": "a.csv", "header": True, "on_error": "skip"}
    parts = opened(tmp_path, fields, validation=0.5)
    assert [loader.skipped_at_opening + loader.samples for loader in parts.values()] == [20, 20]
    assert sum(loader.skipped_at_opening for loader in parts.values()) == 10


@pytest.mark.parametrize(("make", "suffix"), LISTS)
def test_unusable_lines_of_a_list_are_counted_in_their_own_part(
    make: Callable[[Path], Any], suffix: str, tmp_path: Path
) -> None:
    fields = {**_list_of(make, suffix, tmp_path), "on_error": "skip", "classes": ["a", "b"]}
    whole = opened(tmp_path, fields, validation=0.25, test=0.25)
    missing = [files_of(whole["validation"])[0], *files_of(whole["train"])[:2]]
    for file in missing:
        (tmp_path / fields["path"] / "ab"[LABELS[file]] / f"{file:02}.{suffix}").unlink()
    unlabeled = files_of(whole["validation"])[1]
    text = (tmp_path / "list.csv").read_text()
    (tmp_path / "list.csv").write_text(text.replace(f"{unlabeled:02}.{suffix},", f"{unlabeled:02}.{suffix},x"))
    parts = opened(tmp_path, fields, validation=0.25, test=0.25)
    assert [loader.skipped_at_opening for loader in parts.values()] == [2, 2, 0]
    for name, loader in parts.items():
        assert files_of(loader) == [file for file in files_of(whole[name]) if file not in (*missing, unlabeled)]
        assert len(loader.damaged_at_opening) == loader.skipped_at_opening


def test_a_part_of_which_no_file_exists_is_reported(tmp_path: Path) -> None:
    fields = {**_list_of(_images, "png", tmp_path), "on_error": "skip"}
    for file in files_of(opened(tmp_path, fields, test=0.1, time="day")["test"]):
        (tmp_path / "images" / "ab"[LABELS[file]] / f"{file:02}.png").unlink()
    with pytest.raises(InputError, match="no sample of the test data can be used") as error:
        opened(tmp_path, fields, test=0.1, time="day")
    assert "4 samples, the first: file " in str(error.value.problems[0].got)


@pytest.mark.parametrize(
    ("hold_out", "message"),
    [
        ({}, "nothing is held out"),
        ({"validation": 0.6, "test": 0.4}, "nothing is left to train on"),
        ({"folds": 5}, "`folds` and `fold` belong together"),
        ({"folds": 5, "fold": 5}, "there is no such fold"),
        ({"folds": 5, "fold": 1, "validation": 0.1}, "cannot be combined"),
        ({"validation": 0.1, "group": "a", "time": "b"}, "`group` and `time` cannot be combined"),
        ({"validation": 0.1, "stratify": "a", "time": "b"}, "`stratify` and `time` cannot be combined"),
        ({"folds": 5, "fold": 1, "time": "b"}, "`time` and `folds` cannot be combined"),
        ({"test": 0.1, "time_format": "%Y"}, "`time_format` has no effect without `time`"),
        ({"val": 0.1}, "use `validation`"),
        ("train", "this source has no stored parts"),
    ],
)
def test_wrong_fields_are_reported_before_data_is_read(hold_out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_train(_training({"source": "npz", "path": "none.npz", "split": hold_out}))


def test_duplicate_data_is_reported() -> None:
    train = {"source": "npz", "path": "none.npz", "split": {"test": 0.1}}
    with pytest.raises(InputError, match="the test data is defined twice"):
        load_train(_training(train, test={"source": "npz", "path": "b.npz", "batch_size": 4}))
    with pytest.raises(InputError, match=r"`data\.test` is evaluated in full"):
        load_train(_training({"source": "npz", "path": "none.npz"}, test={**train, "batch_size": 4}))


@pytest.mark.parametrize(
    ("hold_out", "message"),
    [
        ({"test": 0.1, "stratify": "lable"}, "no field or column `lable`"),
        ({"test": 0.001}, "no sample is left for test data"),
        ({"test": 0.1, "group": "kind"}, "no sample is left for test data"),
        ({"test": 0.1, "time": "kind"}, "not all values are numbers or dates"),
        ({"test": 0.1, "time": "kind", "time_format": "%d.%m.%Y"}, "not all values are dates in this format"),
    ],
)
def test_options_that_the_data_does_not_allow_are_reported(tmp_path: Path, hold_out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        opened(tmp_path, _csv(tmp_path), **hold_out)


@pytest.mark.parametrize(
    "times", [["1", "", "3"], ["2026-01-01", "2026-01-02", ""], ["1", "NaN", "2"], ["?", "1", "2"]]
)
def test_samples_without_a_time_are_not_the_last_ones(tmp_path: Path, times: list[str]) -> None:
    (tmp_path / "a.csv").write_text("day,x\n" + "".join(f"{time},1\n" for time in times))
    fields = {"source": "csv", "path": "a.csv", "header": True, "columns": ["x"]}
    with pytest.raises(InputError, match="1 sample of 3 has no time") as error:
        opened(tmp_path, fields, test=0.4, time="day")
    assert error.value.problems[0].path == "split.time"
    line = 2 + next(index for index, time in enumerate(times) if not time[:1].isdigit())
    assert error.value.problems[0].got == f"none in a.csv, line {line}"


def test_streams_cannot_be_divided() -> None:
    split = split_of(source="python", batch_size=4, split={"test": 0.5}).with_samples(lambda: iter([{"x": 1.0}] * 4))  # type: ignore[attr-defined]  # a Python source
    with pytest.raises(InputError, match="no samples of it can be held out"):
        split.open()


def _training(train: dict[str, Any], **others: Any) -> dict[str, Any]:
    net = {
        "netspec": 1, "inputs": {"x": {"shape": [1]}}, "layers": [{"type": "Dense", "units": 1, "name": "y"}],
        "losses": [{"type": "Value", "from": "y"}],
    }  # fmt: skip
    data = {"train": {"batch_size": 4, **train}, **others}
    return {"netspec": 1, "net": net, "data": data, "solver": {"type": "SGD", "learning_rate": 0.1},
            "train": {"max_steps": 1}}  # fmt: skip


def _numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a sample with a number in place of each expression."""
    return {name: 0.5 if isinstance(value, str) and "$" in value else value for name, value in fields.items()}


def _transforms() -> list[tuple[str, dict[str, Any]]]:
    of_images = [name for name in TRANSFORMS.names() if issubclass(TRANSFORMS[name], (ImageTransform, Mixing))]
    return [(name, _numbers(fields)) for name in of_images for fields in TRANSFORMS[name].samples]  # type: ignore[attr-defined]  # of transforms


@pytest.mark.parametrize(("name", "fields"), _transforms(), ids=str)
def test_held_out_images_are_transformed_to_the_same_shapes_without_chance(name: str, fields: dict[str, Any]) -> None:
    split = split_of(source="npz", path="a.npz", batch_size=4, transforms=[{"type": name, **fields}])
    types = {"image": FieldType((3, 32, 32), "uint8"), "label": FieldType((), "int32")}
    trained = TransformPipeline(DeclaredDataset(Survey(types)), split, seed=0)
    evaluated = TransformPipeline(
        DeclaredDataset(Survey(types)), split.held_out("test"), seed=0, learned=trained.learned
    )
    assert {name: kind.shape for name, kind in evaluated.fields.items()} == {
        name: kind.shape for name, kind in trained.fields.items()
    }
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32)).astype(np.uint8)
    for _, step in evaluated.transforms:
        assert not step.random
        if isinstance(step, ImageTransform):
            first, other = (step.apply(images, SampleKeys(0, epoch, np.arange(6), 0)) for epoch in (0, 1))
            np.testing.assert_array_equal(np.asarray(first), np.asarray(other))


@pytest.mark.parametrize(("name", "fields"), _transforms(), ids=str)
def test_transforms_know_whether_they_are_random(name: str, fields: dict[str, Any]) -> None:
    [declared] = split_of(source="npz", path="a.npz", batch_size=4, transforms=[{"type": name, **fields}]).transforms
    assert isinstance(declared, Transform)
    draws = isinstance(declared, ImageTransform) and (declared.draws > 0 or name == "GaussianNoise")
    assert declared.random == (declared.mixes or draws)


def test_clips_are_cut_at_the_same_position_every_time() -> None:
    padding = {"type": "Padding", "length": 4, "truncating": "random"}
    split = split_of(source="npz", path="a.npz", batch_size=4, transforms=[padding])
    pipeline = TransformPipeline(
        DeclaredDataset(Survey({"x": FieldType((None,), "float32")})), split.held_out("test"), seed=0
    )
    [(_, step)] = pipeline.transforms
    assert step.truncating == "post"  # type: ignore[attr-defined]  # of Padding
