"""`netspec.init`: the written files pass `check` and train; findings about the data."""

from __future__ import annotations

import itertools
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import netspec
from netspec.errors import InputError, format_digits
from netspec.schema.specs.data import SplitFields
from netspec.tools.init import InitResult, init
from netspec.tools.specs import load_train


def trains(result: InitResult, folder: Path) -> netspec.Run:
    """Check the files, and train two steps: shapes, classes and parts of the data fit."""
    assert netspec.check(result.train).kind == "training"
    few = {"train.max_epochs": 1, "data.train.batch_size": 16}
    return netspec.train(str(result.train), run_dir=folder / "run", device="reference", **few)


def train_split(result: InitResult) -> SplitFields:
    return load_train(result.train).data.train


def test_images_in_class_folders(photos: Path, tmp_path: Path) -> None:
    result = init(photos)
    assert result.task == "image classification"
    assert (result.net, result.train) == (photos / "net.yaml", photos / "train.yaml")
    split = train_split(result)
    assert split.classes == ["cat", "dog"]  # type: ignore[attr-defined]  # of image_folder
    assert split.hold_out is not None
    assert (split.hold_out.parts, split.hold_out.stratify) == (("validation", "test"), "label")
    assert "size" in result.train.read_text()  # images differ in size
    run = trains(result, tmp_path)
    assert run.test is not None
    assert run.test.samples == 8


def test_images_beyond_the_sample_are_not_searched(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in photos.glob("*/*"):
        path.write_bytes(path.read_bytes()[:200])
    monkeypatch.setattr("netspec.tools.init.images.MAX_OPENED", 10)
    result = init(photos)
    assert "30 other images: not searched for damaged files and duplicates" in result.findings
    (warning,) = [text for text in result.warnings if "cannot be read" in text]
    assert warning.startswith("10 of 10 images that were opened cannot be read and are left out: ")


def test_images_of_one_small_size_keep_it(tmp_path: Path) -> None:
    for index in range(24):
        path = tmp_path / "digits" / str(index % 3) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((20, 20), index, np.uint8)).save(path)
    result = init(tmp_path / "digits")
    text = result.train.read_text()
    assert "    channels: 1" in text
    assert "    size: [20, 20]" in text  # images of other sizes are predicted by the same files
    assert "RandomFlip" not in text  # digits are not mirrored
    assert "{shape: [1, 20, 20]}" in result.net.read_text()
    assert netspec.check(result.train).kind == "training"


def test_dates_that_all_differ_are_not_identifiers(tmp_path: Path) -> None:
    days = [f"2024-{1 + index // 28:02}-{1 + index % 28:02}" for index in range(120)]
    lines = ["built,size,price", *(f"{day},{index % 7},{index * 10}" for index, day in enumerate(days))]
    (tmp_path / "houses.csv").write_text("\n".join(lines) + "\n")
    text = init(tmp_path / "houses.csv", target="price").train.read_text()
    assert "built: {type: date" in text


def test_few_texts_train_until_their_loss_is_low(tmp_path: Path) -> None:
    for index in range(60):
        path = tmp_path / "reviews" / ("bad", "good")[index % 2] / f"{index}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"a {('dull', 'warm')[index % 2]} film number {index}")
    text = init(tmp_path / "reviews", task="text").train.read_text()
    assert "monitor: loss" in text
    assert "early_stopping: {patience: 75}" in text  # early stopping waits at least 150 steps, and epochs have 2


@pytest.mark.parametrize(("rows", "monitor"), [(600, "loss"), (9_000, "accuracy")])
@pytest.mark.parametrize("task", ["text", None])
def test_the_loss_of_small_tables_decides_when_training_ends(
    tmp_path: Path, rows: int, task: str | None, monitor: str
) -> None:
    lines = [f"the parcel number {index} came about {index % 5} days late,{index % 7}.5,{int(index % 3 == 0)}"
             for index in range(rows)]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["text,size,label", *lines]))
    text = init(tmp_path / "t.csv", task=task).train.read_text()
    assert text.count("monitor: loss") == 2 * (monitor == "loss")
    assert text.count("monitor: accuracy") == 2 * (monitor == "accuracy")


def test_an_outlier_of_a_table_does_not_move_the_prediction_far(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(0, 10, (400, 2)).round(3)
    lines = ["size,rooms,price", *(f"{size},{rooms},{3 * size + rooms:.4f}" for size, rooms in rows)]
    (tmp_path / "houses.csv").write_text("\n".join(lines) + "\n")
    result = init(tmp_path / "houses.csv", target="price")
    netspec.train(str(result.train), run_dir=tmp_path / "run", device="reference", train={"max_epochs": 5})
    (tmp_path / "new.csv").write_text("size,rooms\n5,5\n5000,5\n")
    usual, outlier = netspec.predict(tmp_path / "run", str(tmp_path / "new.csv"), device="reference").answers[
        "prediction"
    ]
    assert 0 < usual < 40
    assert outlier < 80


def test_folders_for_training_and_test_are_used(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "sets"
    for part in ("train", "test"):
        (root / part).parent.mkdir(exist_ok=True)
        (root / part).symlink_to(photos)
    result = init(root)
    data = load_train(result.train).data
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("validation",)
    assert data.test is not None
    assert trains(result, tmp_path).test is not None


def test_texts_for_training_and_test_are_used(reviews: Path, tmp_path: Path) -> None:
    root = tmp_path / "sets"
    root.mkdir()
    for part in ("train", "test"):
        (root / part).symlink_to(reviews)
    result = init(root)
    data = load_train(result.train).data
    assert getattr(data.train, "classes", None) == ["bad", "good"]
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("validation",)
    assert data.test is not None
    assert netspec.check(result.train).warnings == ()


def test_a_folder_without_files_is_named(reviews: Path) -> None:
    (reviews / "empty class").mkdir()
    result = init(reviews)
    assert f"folders without files are not used as classes: {reviews}/empty class" in result.warnings
    assert netspec.check(result.train).warnings == ()


def test_a_class_may_be_named_train(reviews: Path) -> None:
    (reviews / "bad").rename(reviews / "train")
    assert getattr(load_train(init(reviews).train).data.train, "classes", None) == ["good", "train"]


@pytest.mark.parametrize("kind", ["photos", "reviews"])
def test_the_sample_does_not_depend_on_the_time(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = request.getfixturevalue(kind)
    findings = init(data).findings
    hours = itertools.count(0.0, 3600.0)
    monkeypatch.setattr("time.monotonic", lambda: next(hours))
    assert init(data, force=True).findings == findings


def test_problems_of_images_are_reported(photos: Path, tmp_path: Path) -> None:
    (photos / "cat" / "broken.png").write_bytes(b"no image")
    (photos / "dog" / "copy.png").write_bytes((photos / "dog" / "01.png").read_bytes())
    (photos / "dog" / "notes.txt").write_text("a remark")
    result = init(photos)
    first, second = photos / "dog" / "01.png", photos / "dog" / "copy.png"
    (copy,) = (warning for warning in result.warnings if "duplicate" in warning)
    assert any(copy.startswith(f"1 of 41 images is a duplicate ({a} and {b}); copies in")
               for a, b in ((first, second), (second, first)))  # fmt: skip
    (photos / "cat" / "copy.png").write_bytes(first.read_bytes())
    (wrong,) = (warning for warning in init(photos, force=True).warnings if "in another class" in warning)
    assert f"{photos}/cat/copy.png" in wrong
    (photos / "cat" / "copy.png").unlink()
    assert any("broken.png (not an image)" in warning for warning in result.warnings)
    assert f"1 file of another kind is left out: {photos}/dog/notes.txt" in result.warnings
    run = trains(result, tmp_path)  # the broken file is left out
    assert run.steps == 2


def test_a_folder_of_runs_next_to_the_classes_is_not_a_class(photos: Path, tmp_path: Path) -> None:
    result = init(photos)
    (photos / "runs" / "photos").mkdir(parents=True)
    assert trains(result, tmp_path).steps == 2


def test_runs_next_to_the_classes_are_not_read_again(reviews: Path) -> None:
    (reviews / "runs" / "reviews").mkdir(parents=True)
    for name in ("log.txt", "log.jsonl"):
        (reviews / "runs" / "reviews" / name).write_text("step 1")
    result = init(reviews)
    assert not any("runs" in text for text in (*result.findings, *result.warnings))


def test_columns_of_a_table(table: Path, tmp_path: Path) -> None:
    result = init(table, target="left")
    assert result.task == "table classification"
    columns = train_split(result).columns  # type: ignore[attr-defined]  # of csv
    assert list(columns) == ["age", "town", "joined", "price", "left"]
    assert (columns["age"].missing, columns["age"].missing_indicator) == ("median", True)
    assert columns["town"].vocabulary == ["Bergen", "Lund", "Turku"]
    assert columns["left"].vocabulary == ["no", "yes"]
    reasons = dict(finding.removeprefix("left out: `").split("`: ") for finding in result.findings if "`: " in finding
                   and finding.startswith("left out"))  # fmt: skip
    assert reasons.keys() == {"id", "country", "remark"}
    assert trains(result, tmp_path).test is not None


def test_a_number_is_predicted_as_a_number(table: Path, tmp_path: Path) -> None:
    result = init(table, target="price", output=tmp_path / "prices")
    assert result.task == "table regression"
    assert result.train.parent == tmp_path / "prices"
    run = trains(result, tmp_path)
    assert run.validation is not None
    assert run.validation.metrics.keys() == {"mae", "r2"}


@pytest.mark.parametrize(
    ("delimiter", "header"), [(";", True), ("\t", True), (",", False)], ids=["semicolon", "tab", "no header"]
)
def test_dialects_of_tables(tmp_path: Path, delimiter: str, header: bool) -> None:
    rows = [[f"{index / 7:.3f}", "ab"[index % 2], str(index % 3)] for index in range(90)]
    lines = ([["x", "kind", "y"]] if header else []) + rows
    (tmp_path / "a.txt").write_text("".join(delimiter.join(line) + "\n" for line in lines))
    result = init(tmp_path / "a.txt", target="y" if header else "3")
    assert result.findings[1].startswith(f"target `{'y' if header else '3'}`: 3 classes")
    assert trains(result, tmp_path).test is not None


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(100.0), "kind": ["a", "b"] * 50, "label": [0, 1] * 50})
    parquet.write_table(table, tmp_path / "a.parquet")
    result = init(tmp_path / "a.parquet")  # `label` is the target by its name
    assert "source: parquet" in result.train.read_text()
    assert trains(result, tmp_path).test is not None


def test_booleans_of_parquet_are_categories_by_their_text(tmp_path: Path) -> None:
    garage = [row % 3 == 0 for row in range(120)]
    floors = pa.array([float(row % 5) for row in range(120)])
    table = pa.table({"garage": garage, "floor": floors, "sold": [not value for value in garage]})
    parquet.write_table(table, tmp_path / "a.parquet")
    result = init(tmp_path / "a.parquet", target="sold")
    split = train_split(result)
    assert split.columns["garage"].vocabulary == ["false", "true"]  # type: ignore[attr-defined]  # of parquet
    run = trains(result, tmp_path)
    assert run.test is not None
    netspec.export(run.run_dir, tmp_path / "exported")  # the export has compared answers for raw rows
    result = init(tmp_path / "a.parquet", target="floor", task="classification", force=True)
    assert train_split(result).columns["floor"].vocabulary == ["0", "1", "2", "3", "4"]  # type: ignore[attr-defined]  # of parquet
    assert netspec.check(result.train).kind == "training"


def test_the_hour_of_dates_is_read_if_it_differs(tmp_path: Path) -> None:
    days = np.datetime64("2024-01-01", "us") + np.arange(100) * np.timedelta64(1, "D")
    parquet.write_table(pa.table({"day": days, "label": [0, 1] * 50}), tmp_path / "a.parquet")
    assert train_split(init(tmp_path / "a.parquet")).columns["day"].parts == ["timestamp", "month", "weekday"]  # type: ignore[attr-defined]  # of parquet


def test_rows_of_another_length_are_left_out(table: Path, tmp_path: Path) -> None:
    table.write_text(table.read_text() + "1,2\n")
    result = init(table, target="left")
    assert any(warning.startswith("1 row with a different number of cells") for warning in result.warnings)
    assert trains(result, tmp_path).skipped <= 1


def with_a_damaged_row(table: Path, row: int) -> Path:
    """Write a table with letters in UTF-8, one row of which is in Latin-1."""
    head, *lines = [line.replace("Lund", "Malmö").encode() for line in table.read_text().splitlines()]
    lines = [head, *lines * 5]
    lines[row] = lines[row].replace(b"called", "éx".encode("latin-1"))
    table.write_bytes(b"\n".join(lines) + b"\n")
    return table


@pytest.mark.parametrize("row", [1, 1999])
def test_a_row_that_is_not_utf8_is_left_out(table: Path, tmp_path: Path, row: int) -> None:
    result = init(with_a_damaged_row(table, row), target="left")
    (warning,) = (text for text in result.warnings if "UTF-8" in text)
    assert warning.startswith(f"1 row is not text in UTF-8 ({table}:{row + 1}:")
    assert "Malmö" in result.train.read_text(encoding="utf-8")
    assert trains(result, tmp_path).skipped <= 1


def test_a_table_of_an_older_program_is_latin_1(table: Path, tmp_path: Path) -> None:
    table.write_bytes(table.read_text().replace("Lund", "Malmö").encode("latin-1"))
    result = init(table, target="left")
    assert train_split(result).encoding == "latin-1"  # type: ignore[attr-defined]  # of csv
    assert "Malmö" in result.train.read_text(encoding="utf-8")


def test_a_header_that_is_not_utf8(table: Path) -> None:
    head, rows = table.read_text().split("\n", 1)
    table.write_bytes(head.replace("age", "âge").encode("latin-1") + b"\n" + rows.replace("Lund", "Malmö").encode())
    with pytest.raises(InputError, match=r"customers.csv:1:4: the header is not text in UTF-8"):
        init(table, target="left")


def test_texts_in_class_folders(reviews: Path, tmp_path: Path) -> None:
    result = init(reviews)
    assert result.task == "text classification"
    run = trains(result, tmp_path)
    assert run.validation is not None
    assert run.validation.samples == 12


def test_problems_of_texts_and_rows_are_reported(reviews: Path, table: Path) -> None:
    (reviews / "bad" / "x.txt").write_bytes(b"a fil\xfc")
    for name in ("y", "z"):
        (reviews / "good" / f"{name}.txt").write_bytes((reviews / "good" / "1.txt").read_bytes())
    warnings = init(reviews).warnings
    assert (
        f"texts that cannot be read, and are left out: {reviews}/bad/x.txt (not text in UTF-8); "
        "`iconv -f latin1 -t utf8` converts texts of older programs to UTF-8"
    ) in warnings
    example = f"{reviews}/good/1.txt and {reviews}/good/y.txt; {reviews}/good/1.txt and {reviews}/good/z.txt"
    assert any(text.startswith(f"2 of 62 texts are duplicates ({example}); copies in") for text in warnings)
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, lines[2]]))
    warnings = init(table, target="left").warnings
    assert any(text.startswith("1 of 401 rows is a duplicate (row 2 and row 401)") for text in warnings)


def test_texts_without_words_are_reported(reviews: Path, tmp_path: Path) -> None:
    (reviews / "bad" / "x.txt").write_text(" \n")
    assert "1 text has no words" in init(reviews).warnings
    rows = [f"a good film with number {number},good\na bad film with number {number},bad\n,bad" for number in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]))
    assert "20 texts have no words" in init(tmp_path / "t.csv", task="text").warnings


def test_symbols_in_texts_are_words(tmp_path: Path) -> None:
    texts = {"good": "fine parcel, quick 👍👍", "bad": "late parcel, broken 😡", "mixed": "no words for it"}
    rows = [f'{row},"{texts[label]} in {row}",{label}' for row in range(40) for label in texts]
    (tmp_path / "t.csv").write_text("\n".join(["id,body,label", *rows, '40,"...",bad', "41,,good"]) + "\n")
    result = init(tmp_path / "t.csv", task="text")
    train = result.train.read_text().replace("\n      # ", " ")
    assert "punctuation: apart" in train
    assert "`apart` makes words of symbols, which 66% of the texts have, such as 👍, 😡" in train
    assert "texts: `body`: nine of ten have at most 8 words" in result.findings
    assert "1 text has no words" in result.warnings
    assert netspec.check(result.train).kind == "training"
    for label, text in texts.items():
        (tmp_path / "folder" / label).mkdir(parents=True)
        for row in range(10):
            (tmp_path / "folder" / label / f"{row}.txt").write_text(f"{text} in {row}")
    assert "punctuation: apart" in init(tmp_path / "folder").train.read_text()


def test_texts_of_punctuation_alone_have_no_words(tmp_path: Path) -> None:
    rows = [f"{row},the parcel number {row} came late,{'ab'[row % 2]}" for row in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["id,body,label", *rows, "40,...,a", "41,,b"]) + "\n")
    result = init(tmp_path / "t.csv", task="text")
    assert "punctuation: drop" in result.train.read_text()
    assert "2 texts have no words" in result.warnings


def test_copies_of_texts_can_be_kept_in_one_part(tmp_path: Path) -> None:
    rows = [f"{row},the parcel number {row % 50} came late,{'ab'[row % 2]}" for row in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["id,the body,label", *rows]) + "\n")
    result = init(tmp_path / "t.csv", task="text")
    assert result.warnings[0] == (
        "30 of 80 texts are duplicates (row 1 and row 51; row 2 and row 52; row 3 and row 53 and 27 more); copies in "
        'both training and test data make results look too good: `group: "the body"` in `split`, instead of '
        "`stratify`, keeps them together"
    )
    text = result.train.read_text()
    result.train.write_text(text.replace("stratify: label", "group: the body", 1))
    run = netspec.train(result.train, run_dir=tmp_path / "run", **{"train.max_epochs": 1})
    assert run.run_dir.is_dir()


def test_texts_in_a_table_are_trained_like_texts_in_files(reviews: Path, tmp_path: Path) -> None:
    rows = [f'{file.parent.name},"{file.read_text()}"' for file in sorted(reviews.glob("*/*.txt"))]
    rows.append(rows[0].replace("bad", "good", 1))
    (tmp_path / "t.csv").write_text("\n".join(["label,text", *rows]) + "\n")
    result = init(tmp_path / "t.csv", task="text")
    assert any(
        text.startswith("1 duplicate is in another class than the first copy (row 1 and row 61)")
        for text in result.warnings
    )
    of_table, of_files = (load_train(each.train).train for each in (result, init(reviews)))
    assert of_table == of_files


def test_texts_in_a_column(table: Path, tmp_path: Path) -> None:
    result = init(table, target="left", task="text")
    assert result.task == "text classification"
    assert list(train_split(result).columns) == ["remark", "age", "town", "joined", "price", "left"]  # type: ignore[attr-defined]  # of csv
    assert trains(result, tmp_path).test is not None


def test_files_are_overwritten_on_request_only(photos: Path) -> None:
    first = init(photos)
    first.train.write_text("mine")
    with pytest.raises(InputError, match="exist already"):
        init(photos)
    assert first.train.read_text() == "mine"
    init(photos, force=True)
    assert first.train.read_text() != "mine"


def test_a_second_table_in_a_folder_gets_a_folder_of_its_own(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    (table.parent / "more.csv").write_text(table.read_text())
    first = init(table.name, target="left")
    first.net.unlink()
    for folder in ("more_training", "more_training1"):
        with pytest.raises(InputError) as caught:
            init("more.csv", target="left")
        (problem,) = caught.value.problems
        assert problem.message == "train.yaml exists already"
        assert problem.hint is not None
        assert f"`netspec init more.csv --target left --output {folder}`" in problem.hint
        assert init("more.csv", target="left", output=folder).train.is_file()


def test_folders_named_by_dots_get_a_folder_next_to_them(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init(photos)
    monkeypatch.chdir(photos / "cat")
    with pytest.raises(InputError) as caught:
        init("..")
    assert caught.value.problems[0].hint is not None
    assert "`netspec init .. --output ../../photos_training`" in caught.value.problems[0].hint


def test_reading_is_bounded(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from netspec.tools.init import tables

    monkeypatch.setattr(tables, "MAX_ROWS", 100)
    assert init(table, target="left").findings[0].startswith("the first 100 rows")


def test_the_same_data_gives_the_same_files(table: Path, tmp_path: Path) -> None:
    texts = [init(table, target="left", output=tmp_path / name / "new").net.read_text() for name in "ab"]
    assert texts[0] == texts[1]
    assert "name: new\n" in texts[0]  # named after the file, so that nets for the same data have different runs


def test_files_next_to_the_data_have_its_name(table: Path) -> None:
    for output in (None, table.parent):
        assert f"name: {table.stem}\n" in init(table, target="left", output=output, force=True).net.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"data": "none.csv"}, "no such file or folder"),
        ({"data": "empty"}, "the folder empty is empty"),
        ({"data": "customers.csv"}, "which column"),
        ({"data": "customers.csv", "target": "prize"}, "no column 'prize'"),
        ({"data": "customers.csv", "target": "country"}, "one value only"),
        ({"data": "customers.csv", "target": "left", "task": "regression"}, "cannot be predicted as a number"),
        ({"data": "customers.csv", "task": "detection"}, "there is no such task"),
        ({"data": "points.csv"}, "which column"),
        ({"data": "photos", "target": "label"}, "names a column of a table"),
        ({"data": "photos", "task": "regression"}, "needs a table"),
    ],
)
def test_wrong_arguments_are_reported(
    table: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, str], message: str
) -> None:
    (table.parent / "empty").mkdir()
    (table.parent / "points.csv").write_text("x,y,ring\n" + "1,2,0\n3,4,1\n" * 20)
    monkeypatch.chdir(table.parent)
    with pytest.raises(InputError, match=message):
        init(**words)  # type: ignore[arg-type]  # all are texts
    assert not (table.parent / "train.yaml").exists()


def test_a_suggested_target_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "cars.csv").write_text("km,price (EUR)\n" + "1,2\n3,4\n" * 9)
    with pytest.raises(InputError) as caught:
        init(tmp_path / "cars.csv")
    assert caught.value.problems[0].hint == "for example --target 'price (EUR)', the last one"


def test_a_suggested_target_can_be_predicted(tmp_path: Path) -> None:
    rows = [f"{row},{row * 7 % 50}.5,note {row} on this quiet house,2024-01-{1 + row % 28:02}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["id,price,note,day", *rows]) + "\n")
    with pytest.raises(InputError) as caught:
        init(tmp_path / "t.csv")
    assert caught.value.problems[0].hint == "for example --target price, the last one with numbers or classes"
    (tmp_path / "t.csv").write_text(
        "\n".join(["id,note", *(f"{row},a note on house {row}" for row in range(60))]) + "\n"
    )
    with pytest.raises(InputError) as caught:
        init(tmp_path / "t.csv")
    assert caught.value.problems[0].hint is None


def test_a_wrong_target_is_reported_before_files_that_exist(tmp_path: Path) -> None:
    rows = "\n".join(f"{index % 7},{index % 2}" for index in range(60))
    (tmp_path / "t.csv").write_text(f"size,label\n{rows}", encoding="utf-8")
    init(tmp_path / "t.csv")
    with pytest.raises(InputError) as caught:
        init(tmp_path / "t.csv", target="labels")
    messages = [problem.message for problem in caught.value.problems]
    assert "has no column 'labels'" in messages[0]
    assert messages[1].endswith("exist already")
    assert str(caught.value.problems[1].hint).startswith(f"write to a new folder: `--output {tmp_path}/t_training`")


@pytest.mark.parametrize("normalization", ["column", "transforms"])
def test_errors_of_normalized_targets_are_in_their_unit_too(tmp_path: Path, normalization: str) -> None:
    values = np.arange(200) % 23
    rows = "\n".join(f"{value},{1000 + 50 * value}.5" for value in values)
    (tmp_path / "t.csv").write_text(f"size,price\n{rows}", encoding="utf-8")
    result = init(tmp_path / "t.csv", target="price")
    options: dict[str, object] = {"train.max_epochs": 1}
    if normalization == "transforms":
        options |= {"data.train.columns.price.normalization": "none"}
        options |= {"data.train.transforms": [{"type": "Rescaling", "scale": 0.002, "apply_to": "label"}]}
    run = netspec.train(str(result.train), run_dir=tmp_path / "run", device="reference", **options)
    assert run.test is not None
    assert list(run.test.in_units) == ["mae"]  # R² has no unit
    scale = run.test.in_units["mae"] / run.test.metrics["mae"]
    if normalization == "transforms":
        assert scale == pytest.approx(500)
    else:
        assert scale == pytest.approx(np.std(50 * values), rel=0.1)  # computed on the training split
    log = (tmp_path / "run" / "log.txt").read_text()
    assert f"({format_digits(run.test.in_units['mae'], 5)} in the target's unit)" in log
    in_unit = "mae in the target's unit"
    (listed,) = netspec.runs(run.run_dir)
    assert listed.metrics[f"test/{in_unit}"] == run.test.in_units["mae"]
    assert listed.metrics[f"train/{in_unit}"] == pytest.approx(scale * (listed.metrics["train/mae"] or 0))
    assert f">{escape(in_unit)}</th>" in run._repr_html_()
    assert in_unit in [chart.title for chart in netspec.plot(run.run_dir)]
    result_names = [figure.name for figure in netspec.diff(run.run_dir, run.run_dir).results]
    assert f"test/{in_unit}" in result_names
    report = netspec.test(run.run_dir / "spec.yaml", weights=run.weights, report=True).tables["regression_report"]
    mean = report["mean absolute error"]
    assert isinstance(mean, dict)
    assert mean["value"] == pytest.approx(run.test.metrics["mae"], rel=1e-5)
    assert mean["in the target's unit"] == pytest.approx(run.test.in_units["mae"], rel=1e-5)
    (importance,) = netspec.explain_columns(run.run_dir)
    assert list(importance.in_units) == ["mae"]
    assert importance.in_units["mae"] != 0


def test_texts_are_classified_by_the_mean_of_their_words_without_padding(reviews: Path, tmp_path: Path) -> None:
    run = trains(init(reviews), tmp_path)
    model = netspec.load(run.run_dir, device="reference")
    (length,) = model.spec.inputs["text"].shape
    tokens = np.zeros((2, length), np.int32)
    tokens[0, :2], tokens[1, :4] = [3, 5], [3, 5, 5, 3]
    vectors = np.asarray(model.parameters["embedding/embeddings"])[[3, 5]].mean(axis=0)
    expected = vectors @ model.parameters["logits/kernel"] + model.parameters["logits/bias"]
    np.testing.assert_allclose(model.predict({"text": tokens})["logits"], [expected, expected], rtol=1e-4, atol=1e-6)


def test_a_table_of_texts_alone_needs_the_task(tmp_path: Path) -> None:
    rows = [f"the parcel number {index} came {('late', 'early')[index % 2]} today,{index % 2}" for index in range(60)]
    (tmp_path / "mails.csv").write_text("body,kind\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match='`task="text"` classifies texts'):
        init(tmp_path / "mails.csv", target="kind")
    assert not (tmp_path / "train.yaml").exists()
    assert init(tmp_path / "mails.csv", target="kind", task="text").task == "text classification"
