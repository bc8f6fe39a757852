"""Exported models on raw samples in ONNX Runtime give the answers of `netspec predict`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from netspec.tools.exporting.deployed_model import deployed_model
from netspec.tools.inference.predict import predict, spec_and_model
from tests.cli.conftest import Netspec, Outcome
from tests.cli.exported_scripts import run_script, script_lines, train_spec

STEP = 0.002
"""Largest change of a probability in these nets if pixels change by 1 of 255."""


def trained(netspec: Netspec, text: str) -> None:
    train_spec(netspec, text, "--device", "reference")


def exported(netspec: Netspec, path: str = "deployed", *words: str) -> Outcome:
    return netspec.ok("export", "run", "--output", path, *words)


def session(path: str = "deployed/model.onnx") -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def script_json(*arguments: str) -> list[Any]:
    """Return the objects that the script prints with `--json`."""
    return [json.loads(line) for line in script_lines(*arguments, "--json")]


def script_error(*arguments: str, status: int = 1) -> str:
    """Return the message of a script that fails: one line, with exit status 2 for a wrong call or folder."""
    done = run_script(*arguments)
    assert (done.status, done.out) == (status, "")
    (line,) = done.err.splitlines()
    return line


def test_the_script_takes_folders_and_prints_its_usage(netspec, photos):
    trained(netspec, PHOTOS.replace("STEPS", STEPS["bilinear"]))
    exported(netspec, "deployed", "--opset", "17")
    Path("photos/notes.md").write_text("notes")
    assert script_lines("photos") == script_lines(*photos)
    assert script_lines(photos[0], "photos/red")[0] == script_lines(photos[0])[0]
    assert script_lines("-h") == script_lines("photos", "--help") == ["usage: python run.py [--json] IMAGE..."]
    Path("empty").mkdir()
    expected = "error: empty: no images (.bmp, .gif, .jpeg, .jpg, .png, .tif, .tiff, .webp)"
    assert script_error("photos", "empty", status=2) == expected
    command = f"{sys.executable} deployed/run.py {' '.join(photos * 9)} | head -n 1"
    environment = {**os.environ, "HOME": str(Path("empty").absolute())}
    for name in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"):
        environment.pop(name, None)
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")
    assert not list(Path("empty").iterdir()), "onnxruntime's telemetry writes files to the home folder"


def script_notes(*arguments: str) -> list[str]:
    """The notes of a script that succeeds."""
    done = run_script(*arguments)
    assert done.status == 0, done.err
    return done.err.splitlines()


def class_lines(label: str, paths: Any) -> list[str]:
    answers = predict("run", paths).answers
    rows = zip(answers[label], answers["class"], answers["probability"], strict=True)
    return [f"{row}: {name} {probability:.1%}" for row, name, probability in rows]


PHOTOS = """
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [3, 12, 16]}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Conv2D, from: image, filters: 4, kernel_size: 3, activation: relu}
    - {type: Flatten}
    - {type: Dense, name: scores, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: Adam, learning_rate: 0.01}
train: {max_steps: 8}
data:
  train: &data
    source: image_folder
    path: photos
    batch_size: 6
    channels: 3
    transforms: [STEPS, {type: Rescaling, scale: 0.0039}]
  test: *data
"""
SIZES = ((31, 57), (120, 20), (9, 40), (64, 48), (13, 17), (300, 211))
STEPS = {
    "bilinear": "{type: Resizing, height: 12, width: 16}",
    "bicubic": "{type: Resizing, height: 12, width: 16, interpolation: bicubic}",
    "lanczos": "{type: Resizing, height: 12, width: 16, interpolation: lanczos}",
    "nearest": "{type: Resizing, height: 12, width: 16, interpolation: nearest, crop_to_aspect_ratio: true}",
    "crop": "{type: Resizing, height: 12, width: 16, crop_to_aspect_ratio: true}",
    "pad": "{type: Resizing, height: 12, width: 16, pad_to_aspect_ratio: true, fill_value: 9}",
    "center": "{type: CenterCrop, height: 12, width: 16}",
    "gray": "{type: Grayscale, num_output_channels: 3}, {type: Resizing, height: 12, width: 16}",
    "both": "{type: Resizing, height: 20, width: 22}, {type: CenterCrop, height: 12, width: 16}",
}


@pytest.fixture
def photos(current_folder: Path) -> list[str]:
    """Smooth images with noise, each of another size; of two classes."""
    random = np.random.default_rng(0)
    for index, (height, width) in enumerate(SIZES):
        folder = Path("photos") / ("blue", "red")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        rows, columns = np.indices((height, width))
        wave = 100 + 60 * np.sin(rows / 7 + index) + 40 * np.cos(columns / 5)
        pixels = wave[..., None] + random.normal(0, 12, (height, width, 3))
        pixels[:, :, 0 if index % 2 else 2] += 40
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{index}.png")
    return sorted(map(str, Path("photos").glob("*/*")))


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS.values(), ids=list(STEPS))
def test_photos_of_any_size_give_the_probabilities_of_predict(netspec, photos, steps):
    trained(netspec, PHOTOS.replace("STEPS", steps))
    result = exported(netspec, "net.onnx")  # with preprocessing by default: all of it has a form in ONNX
    assert "image [N, 3, height, width] → probabilities [N, 2]" in result.out
    assert "does not contain" not in result.err
    net = session("net.onnx")
    answers = predict("run", photos).answers
    names = json.loads(net.get_modelmeta().custom_metadata_map["netspec_classes"])["probabilities"]
    for path, name, probability in zip(answers["file"], answers["class"], answers["probability"], strict=True):
        with Image.open(path) as image:
            (found,) = net.run(None, {"image": np.asarray(image).transpose(2, 0, 1)[None]})
        assert abs(found.max() - probability) < STEP
        assert names[found.argmax()] == name


def test_with_an_older_opset_images_are_resized_outside(netspec, photos):
    trained(netspec, PHOTOS.replace("STEPS", STEPS["bilinear"]))
    result = exported(netspec, "net.onnx", "--opset", "17")
    assert "the model does not contain the preprocessing: `image`: Resizing" in result.err
    assert "image [N, 3, 12, 16] → scores [N, 2]" in result.out
    exported(netspec, "deployed", "--opset", "17")  # a folder contains the rest
    assert script_lines(*photos) == class_lines("file", photos)


def test_a_fixed_batch_of_photos(netspec, photos):
    trained(netspec, PHOTOS.replace("STEPS", STEPS["bilinear"]))
    result = exported(netspec, "net.onnx", "--batch-size", "3")
    assert "image [3, 3, height, width] → probabilities [3, 2]" in result.out


def test_an_import_reads_the_net_without_its_preprocessing(netspec, photos):
    trained(netspec, PHOTOS.replace("STEPS", f"{STEPS['bilinear']}, {{type: RandomFlip}}"))
    exported(netspec, "net.onnx")
    result = netspec.ok("import", "net.onnx", "--output", "imported")
    assert "the preprocessing and postprocessing in the model are left out" in result.out
    pixels = np.random.default_rng(1).integers(0, 256, (3, 3, 12, 16), np.uint8) * np.float32(0.0039)
    expected = predict("run", {"image": pixels}).answers
    answers = predict("imported", {"image": pixels}).answers
    assert answers["class"] == expected["class"]
    np.testing.assert_allclose(answers["probability"], expected["probability"], rtol=1e-4)
    np.savez("x.npz", image=pixels)
    steps = netspec("predict", "imported", "--input", "x.npz", "--output", "y.npz")
    assert "`image`: Resizing, height 12, width 16" in steps.err
    netspec.ok("export", "run", "--output", "net.onnx", "--without-preprocessing")
    netspec.ok("import", "net.onnx", "--output", "alone")
    assert Path("imported/net.yaml").read_text() == Path("alone/net.yaml").read_text()


TABLE = """
netspec: 1
net:
  netspec: 1
  inputs:
    features: {shape: [22]}
    town: {shape: [], dtype: int32}
    review: {shape: [5], dtype: int32}
    label: {shape: [], dtype: int32}
  layers:
    - {name: towns, type: Embedding, from: town, input_dim: 4, output_dim: 3}
    - {name: words, type: Embedding, from: review, input_dim: 9, output_dim: 2}
    - {name: flat, type: Flatten}
    - {name: joined, type: Concatenate, from: [features, towns, flat]}
    - {name: scores, type: Dense, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: SGD, learning_rate: 0.01}
train: {max_steps: 3}
data:
  train:
    source: csv
    path: rows.csv
    header: true
    label: "left"
    batch_size: 8
    columns:
      age: {type: numeric, missing: median, missing_indicator: true, normalization: standard}
      color: {type: categorical, unknown: index, missing: unknown, vocabulary: [blue, green]}
      since:
        type: date
        parts: [year, month, day, weekday, day_of_year, hour, minute, second, timestamp]
        normalization: standard
      day: {type: date, format: "%d.%m.%y", parts: [month, weekday]}
      seen: {type: date, missing: mean, missing_indicator: true, parts: [timestamp, day], normalization: standard}
      paid: {type: date, missing: mean, parts: [month, weekday, hour]}
      town: {type: categorical, output_mode: int, unknown: index, missing: unknown}
      review:
        {type: text, length: 5, tokenizer: {type: words, lowercase: true, padding: true, unknown: true, size: 9}}
      left: {type: categorical, vocabulary: ["yes", "no"]}
"""


@pytest.fixture
def rows(current_folder: Path) -> Path:
    """Forty rows with numbers, names, dates and texts, some of them missing."""
    random = np.random.default_rng(2)
    columns = {
        "age": ["18", "30.25", "", "?"], "color": ["blue", "green", "teal", ""],
        "since": ["1969-12-31T23:59:59", "2000-02-29", "2024-12-31T12:30:00+02:00", "1904-03-01 00:00:01"],
        "day": ["01.03.24", "31.12.99", "29.02.00"], "seen": ["2024-02-29", "2001-01-31T07:00", "", "NA"],
        "paid": ["2020-05-06", "1999-12-31T23:00", "2021-11", " "], "town": ["Lund", "Turku", "Bergen", "?"],
        "review": ["Good value", "not good at all; don't buy this", "Über alles, GUT"], "left": ["yes", "no"],
    }  # fmt: skip
    lines = [",".join(f'"{random.choice(values)}"' for values in columns.values()) for _ in range(40)]
    Path("rows.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    return current_folder


def test_a_table_with_dates_and_texts(netspec, rows):
    trained(netspec, TABLE)
    result = exported(netspec)
    assert "in the model: 7 columns, softmax" in result.out
    assert "`review`: tokens of texts" in result.err
    assert script_lines("rows.csv") == class_lines("row", "rows.csv")
    predicted = netspec("predict", "run", "--input", "rows.csv", "--json").lines
    answers = script_json("rows.csv")
    assert [(answer["row"], answer["class"]) for answer in answers] == [(row["row"], row["class"]) for row in predicted]
    for answer, row in zip(answers, predicted, strict=True):
        assert answer["probability"] == pytest.approx(row["probability"], abs=1e-5)
        assert answer["probability"] == answer["probabilities"][answer["class"]]
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    card = Path("deployed/README.md").read_text()
    assert "| `since` | [N] | float64 | time in seconds since 1970-01-01 00:00 UTC |" in card
    assert "| `seen` | [N] | float64 | time in seconds since 1970-01-01 00:00 UTC; NaN if it is missing |" in card
    assert "| `review` | [N, 5] | int32 | tokens of a text, from `vocabulary.json` |" in card
    file = exported(netspec, "net.onnx")  # not by default, because tokens have no form in ONNX
    assert "features [N, 22], town [N], review [N, 5] → scores [N, 2]" in file.out
    assert "the model does not contain the preprocessing: `review`" in file.err


def test_only_columns_that_need_it_are_listed(netspec, current_folder):
    Path("rows.csv").write_text("length,width,color,town,size,kind\n1,2,red,Lund,3,long\n4,5,blue,Turku,6,short\n")
    columns = (
        "length: numeric, width: {type: numeric, missing: mean}, color: {type: categorical, vocabulary: [red, blue]}"
    )
    text = NOTED.replace(
        "FIELDS, columns: {length: numeric, color: categorical}",
        f"""header: true,
     columns: {{{columns}, town: categorical, size: {{type: numeric, field: more, normalization: standard}}}},
     transforms: [{{type: Padding, apply_to: features, length: 7}}]""",
    )
    text = text.replace("{features: {shape: [3]}", "{features: {shape: [7]}, more: {shape: []}")
    text = text.replace("layers: [{", "layers: [{name: flat, type: Reshape, from: more, target_shape: [1]}, {")
    trained(netspec, text.replace("from: features}", "from: features}, {type: Concatenate, from: [scores, flat]}"))
    assert exported(netspec, "net.onnx", "--with-preprocessing", "--json").json["left_out"][:2] == [
        "encoding of the columns `width`, `color`, `town`, as `source: csv` does it",
        "`features`: Padding, which ONNX cannot compute exactly",
    ]


NOTES = "sensors of 2024\n// a, b\n"
"""Two lines before a table, the second of which is a comment."""


@pytest.mark.parametrize(
    ("fields", "before", "changes"),
    [
        ('header: true, skip_lines: 1, comment: "//"', NOTES, {}),
        ("header: [length, color, kind], delimiter: ';'", "length;color;kind\n", {",": ";"}),
        ('header: true, comment: "//"', "", {",blue": ',"blue\n// dark"'}),
        ("header: [length, color, kind], quotes: false, comment: '#'", "#x\n", {"red": '"red'}),
        (
            "header: true, comment: '#'",
            '# 5" x 4\n',
            {",blue": ',"#blue\n# ""a"""', "6,red": " 6, red ", "8,": "#8,"},
        ),
        ('header: true, delimiter: "\\t"', " \n", {",": "\t", "red": '5" red', "3\t": "3.\t"}),
    ],
    ids=["comments", "names", "lines", "quotes", "number signs", "blanks"],
)
def test_the_script_reads_tables_as_the_data_is_read(netspec, current_folder, fields, before, changes):
    lines = [f"{length},{('red', 'blue')[length % 2]},{('long', 'short')[length < 8]}" for length in range(16)]
    lines[5:5] = ["// 1,2,3" if "//" in fields else "# 1" if "#" in fields else ""]
    names = ["length,color,kind"] if "true" in fields else []
    text = "\n".join([*names, *lines]) + "\n"
    for old, new in changes.items():
        text = text.replace(old, new)
    Path("rows.csv").write_text(before + text)
    trained(netspec, NOTED.replace("FIELDS", fields))
    exported(netspec)
    expected = class_lines("row", "rows.csv")
    assert len(expected) == 15 if "8," in changes else 16
    assert script_lines("rows.csv") == expected


NOTED = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [3]}, label: {shape: [], dtype: int32}}
  layers: [{name: scores, type: Dense, units: 2, from: features}]
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: Adam, learning_rate: 0.1}
train: {max_steps: 20}
data:
  train:
    {source: csv, path: rows.csv, label: kind, batch_size: 8, FIELDS, columns: {length: numeric, color: categorical}}
"""


def test_a_model_without_preprocessing_describes_the_encodings_of_its_inputs(netspec, rows):
    trained(netspec, TABLE)
    result = netspec.ok("export", "run", "--output", "net.onnx", "--without-preprocessing")
    lines = result.err.splitlines()
    assert "  `features` 2–4: `color`, one-hot: 1 blue, 2 green, 0 others" in lines
    assert any(line.startswith("  `features` 0–1: `age`, 30.25 if missing, minus") for line in lines)
    spec, model = spec_and_model("run", None, (), "cpu", None)
    columns = deployed_model(model, spec).columns
    assert columns is not None
    metadata = {entry.key: entry.value for entry in onnx.load("net.onnx").metadata_props}
    described = json.loads(metadata["netspec_columns"])
    for name, encodings in columns.columns.items():
        expected = json.loads(json.dumps([asdict(encoding) for encoding in encodings]))
        assert [{key: value for key, value in each.items() if key != "type"} for each in described[name]] == expected
    assert "vocabulary" in json.loads(metadata["netspec_tokenizers"])["review"]


def test_a_model_without_preprocessing_says_that_its_output_is_normalized(netspec, current_folder):
    Path("rows.csv").write_text("size,price\n1,10\n2,30\n3,50\n")
    columns = "{size: numeric, price: {type: numeric, normalization: standard}}"
    net = (
        "{netspec: 1, inputs: {features: {shape: [1]}, label: {shape: []}},"
        " layers: [{name: price, type: Dense, units: 1, from: features}],"
        " losses: [{type: MeanSquaredError, from: [price, label]}]}"
    )
    source = f"{{source: csv, path: rows.csv, header: true, label: price, batch_size: 3, columns: {columns}}}"
    Path("train.yaml").write_text(
        f"netspec: 1\nnet: {net}\ndata: {{train: {source}}}\n"
        "solver: {type: SGD, learning_rate: 0.1}\ntrain: {max_steps: 2}\n"
    )
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    for file in ("net.onnx", "net.safetensors"):
        result = netspec("export", "run", "--output", file, "--without-preprocessing")
        assert "note: `price` is normalized: multiply it by 16.3299 and add 30 for values" in result.err
        assert "  `features` 0: `size`" in result.err
    metadata = {entry.key: entry.value for entry in onnx.load("net.onnx").metadata_props}
    assert json.loads(metadata["netspec_targets"])["price"]["offset"] == [30.0]


def test_the_script_reports_a_mistake_in_a_line(netspec, rows):
    trained(netspec, TABLE)
    exported(netspec)
    assert script_error("no.csv") == "error: no.csv: No such file or directory"
    assert script_error("deployed") == "error: deployed: Is a directory"
    Path("other.csv").write_text("age,color,town,review\n1,blue,Lund,good\n")
    assert script_error("other.csv") == (
        "error: other.csv: no column since, day, seen, paid; add seen, paid with empty cells"
    )
    lines = Path("rows.csv").read_text().splitlines()
    Path("empty.csv").write_text(lines[0] + "\n")
    assert script_error("empty.csv") == f"error: empty.csv: no rows below the header {', '.join(lines[0].split(','))}"
    Path("short.csv").write_text("\n".join([*lines[:2], "1,blue", *lines[3:]]))
    assert script_error("short.csv") == "error: short.csv: row 2: 2 cells, expected 9"
    Path("bad.csv").write_text("\n".join([*lines[:3], '"14 km"' + lines[3][lines[3].index(",") :], *lines[4:]]))
    assert script_error("bad.csv") == "error: bad.csv: row 3: cannot read age '14 km'"
    Path("lost.csv").write_text("\n".join([*lines[:4], "1,blue,?,01.03.24,,,Lund,good,yes"]))
    assert script_error("lost.csv") == "error: lost.csv: row 4: since is missing"
    assert script_error(status=2) == "error: usage: python run.py [--json] TABLE.csv"


def test_the_script_needs_the_files_of_its_folder(netspec, rows):
    trained(netspec, TABLE)
    exported(netspec)
    Path("deployed/model.onnx").write_bytes(b"no model")
    assert script_error("rows.csv", status=2).startswith(f"error: {Path.cwd()}/deployed/model.onnx: ")
    for name in ("vocabulary.json", "model.onnx"):
        Path("deployed", name).unlink()
        expected = f"deployed/{name}: no such file; run.py needs all files that were exported with it"
        assert script_error("rows.csv", status=2) == f"error: {Path.cwd()}/{expected}"


@pytest.mark.parametrize("missing", ["drop", "empty", "error"])
def test_the_script_reads_missing_texts(netspec, rows, missing):
    trained(netspec, TABLE.replace("type: text,", f"type: text, missing: {missing},"))
    exported(netspec)
    lines = Path("rows.csv").read_text().splitlines()
    for row, text in ((2, ""), (5, " NA "), (9, "?")):
        cells = lines[row].split(",")
        lines[row] = ",".join([*cells[: -3 if len(cells) > 9 else -2], f'"{text}"', cells[-1]])
    Path("lost.csv").write_text("\n".join(lines) + "\n")
    if missing == "error":
        assert script_error("lost.csv") == "error: lost.csv: row 2: review is missing"
        assert netspec("predict", "run", "--input", "lost.csv").status == 2
        return
    expected = class_lines("row", "lost.csv")
    assert len(expected) == (37 if missing == "drop" else 40)
    assert script_lines("lost.csv") == expected


def test_the_script_refuses_unknown_categories(netspec, current_folder):
    lines = [f"2024-01-{1 + i:02},{i},{('red', 'blue')[i % 2]},{('long', 'short')[i < 8]}" for i in range(16)]
    Path("rows.csv").write_text("\n".join(["since,length,color,kind", *lines]) + "\n")
    trained(netspec, DROPPED)
    exported(netspec)
    Path("new.csv").write_text("since,length,color\n2024-01-01,1,red\n2024-01-01,1,teal\n")
    assert script_error("new.csv") == "error: new.csv: row 2: 'teal' is not a category of color"
    assert netspec("predict", "run", "--input", "new.csv").status == 2


COLUMNS = """\
netspec: 1
net:
  netspec: 1
  name: towns
  inputs:
    features: {shape: [4]}
    town: {shape: [], dtype: int32}
    label: {shape: [], dtype: int32}
  layers:
    - {name: embedding, type: Embedding, input_dim: 3, output_dim: 2, from: town}
    - {type: Concatenate, from: [features, embedding]}
    - {name: logits, type: Dense, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: csv
    path: rows.csv
    header: true
    label: kind
    batch_size: 8
    columns:
      color: {type: categorical, unknown: index, missing: unknown, vocabulary: [red, blue, white]}
      town: {type: categorical, output_mode: int, unknown: index, missing: unknown}
      kind: {type: categorical, vocabulary: [long, short]}
solver: {type: Adam, learning_rate: 0.1}
train: {max_epochs: 4}
"""


def test_categories_without_training_rows_have_no_random_effect(netspec, current_folder):
    lines = [f"{('red', 'blue')[i % 2]},{('Lund', 'Bergen')[i % 3 == 0]},{('long', 'short')[i < 8]}" for i in range(16)]
    Path("rows.csv").write_text("\n".join(["color,town,kind", *lines]) + "\n")
    trained(netspec, COLUMNS)
    exported(netspec)
    Path("new.csv").write_text("color,town\nteal,Lund\n,Lund\nwhite,Lund\nred,Lund\nred,Oslo\nred,?\nblue,Bergen\n")
    (rows,) = predict("run", "new.csv").outputs.values()
    assert (rows[:3] == rows[0]).all()
    assert (rows[3:6] == rows[3]).all()
    assert (rows[3] != rows[0]).all()
    assert script_lines("new.csv") == class_lines("row", "new.csv")


def test_the_script_notes_what_the_training_did_not_learn(netspec, rows):
    trained(netspec, TABLE.replace("type: text,", "type: text, missing: drop,"))
    exported(netspec)
    assert script_notes("rows.csv") == [f"note: {note}" for note in predict("run", "rows.csv").unknown]
    head, *lines = Path("rows.csv").read_text().splitlines()
    known = next(line for line in lines if "Lund" in line and "blue" in line).split(",")
    changes: tuple[dict[str, str], ...] = (
        {"Lund": "Oslo"},
        {"Lund": "Oslo", "blue": "red"},
        {"Lund": "Rome"},
        {},
        {"Lund": "?"},
    )
    cells = [[change.get(cell.strip('"'), cell) for cell in known] for change in changes]
    cells[1][-2], cells[3][-2:-1] = "xyzzy", ["%%%"]
    Path("new.csv").write_text("\n".join([head, *map(",".join, cells), ",".join([*known[:-2], "", "yes"])]) + "\n")
    notes = predict("run", "new.csv").unknown
    assert len(notes) == 2
    assert "such as 'Oslo'" in notes[0]
    assert notes[1] == "2 texts have no token of the vocabulary: row 2, row 4"
    assert script_notes("new.csv")[1:] == [f"note: {line}" for line in (*notes[0].split("; "), notes[1])]


NOTATION = 'header: true, delimiter: ";", decimal: ",", thousands: "."'


def test_the_script_reads_numbers_in_their_notation(netspec, current_folder):
    numbers = [f"{index}.{index:03},{index}5 kg" if index % 2 else f"kg -{index},5" for index in range(1, 17)]
    rows = [f"{number};{('red', 'blue')[i % 2]};{('long', 'short')[i < 8]}" for i, number in enumerate(numbers)]
    Path("rows.csv").write_text("\n".join(["length;color;kind", *rows]) + "\n")
    text = NOTED.replace("FIELDS", NOTATION).replace("length: numeric", "length: {type: numeric, unit: kg}")
    trained(netspec, text)
    exported(netspec)
    assert script_lines("rows.csv") == class_lines("row", "rows.csv")
    for cell in ("1.5 kg", "kg 1 kg", "17", "1_7 kg", "inf kg", "1e39 kg", "1.2345 kg"):
        Path("bad.csv").write_text("\n".join(["length;color;kind", f"{cell};red;long", *rows]) + "\n")
        assert script_error("bad.csv") == f"error: bad.csv: row 1: cannot read length {cell!r}"
        assert netspec("predict", "run", "--input", "bad.csv").status == 2, cell


def test_the_script_reads_booleans_of_parquet_as_numbers(netspec, current_folder):
    lengths, colors, kinds = range(16), [index % 2 == 0 for index in range(16)], ["long", "short"] * 8
    pq.write_table(pa.table({"length": lengths, "color": colors, "kind": kinds}), "rows.parquet")
    text = NOTED.replace("csv", "parquet").replace("FIELDS, ", "").replace("color: categorical", "color: numeric")
    trained(netspec, text.replace("shape: [3]", "shape: [2]"))
    exported(netspec)
    assert "| `color` | [N] | float64 | number: 1 for true, 0 for false |" in Path("deployed/README.md").read_text()
    for true, false in (("true", "false"), ("True", "False"), ("1", "0")):
        cells = zip(lengths, [true if color else false for color in colors], strict=True)
        Path("rows.csv").write_text("\n".join(["length,color", *(f"{length},{color}" for length, color in cells)]))
        assert script_lines("rows.csv") == class_lines("row", "rows.parquet") == class_lines("row", "rows.csv")
    assert script_lines("rows.parquet") == class_lines("row", "rows.parquet")
    Path("bad.csv").write_text("length,color\n1,2\n")
    assert script_error("bad.csv") == "error: bad.csv: row 1: cannot read color '2'"


def test_tables_of_another_format_than_the_training_data(netspec, current_folder):
    numbers = [index + 0.5 for index in range(15)] + [15.0]
    columns = {"length": numbers, "color": ["red", "blue"] * 8, "kind": ["long"] * 8 + ["short"] * 8}
    rows = [";".join(map(str, row)).replace(".", ",") for row in zip(*columns.values(), strict=True)]
    Path("rows.csv").write_text("\n".join([";".join(columns), *rows]) + "\n")
    pq.write_table(pa.table(columns), "new.parquet")
    trained(netspec, NOTED.replace("FIELDS", NOTATION))
    exported(netspec)
    expected = class_lines("row", "rows.csv")
    assert class_lines("row", "new.parquet") == expected == script_lines("new.parquet")
    sizes = {"length": [1.0, 2.0], "color": [1.5, 2.5], "kind": ["long", "short"]}
    pq.write_table(pa.table(sizes), "sizes.parquet")
    message = "sizes.parquet: row 1: '1.5' is not a category of color"
    assert script_error("sizes.parquet") == f"error: {message}"
    assert "'1.5'" in netspec("predict", "run", "--input", "sizes.parquet").err
    with Path("new.parquet").open("rb") as file:
        assert predict("run", file).answers["row"] == list(range(1, 17))
    Path("new.csv").write_bytes(b"length;color\n1;red\n2;\xfcber\n")
    assert script_error("new.csv") == (
        "error: new.csv: line 3: not UTF-8 (byte 0xfc); save it as UTF-8, or train with `encoding: latin-1` or "
        "`encoding: cp1252`"
    )
    text = NOTED.replace("csv", "parquet").replace("FIELDS, ", "")
    trained(netspec, text.replace("rows.parquet", "new.parquet"))
    Path("new.csv").write_text(Path("rows.csv").read_text().replace(",", "."))
    assert class_lines("row", "new.csv") == class_lines("row", "new.parquet")
    pq.write_table(pa.table({"color": ["red"]}), "short.parquet")
    assert "short.parquet has no column 'length'" in netspec("predict", "run", "--input", "short.parquet").err


DROPPED = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [5]}, label: {shape: [], dtype: int32}}
  layers: [{type: Flatten, from: features}, {name: scores, type: Dense, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: Adam, learning_rate: 0.1}
train: {max_steps: 5}
data:
  train:
    source: csv
    path: rows.csv
    header: true
    label: kind
    batch_size: 4
    columns:
      since: {type: date, parts: [year, month], normalization: standard, missing: drop}
      length: {type: numeric, missing: drop, missing_values: [-1]}
      color: {type: categorical, vocabulary: [red, blue], missing: drop, missing_values: [none]}
      kind: {type: categorical, vocabulary: [long, short]}
"""


def test_the_script_leaves_out_rows_with_missing_values(netspec, current_folder):
    lines = [f"{2000 + i}-0{1 + i % 3}-11,{i},{('red', 'blue')[i % 2]},{('long', 'short')[i < 8]}" for i in range(16)]
    lines[3], lines[5], lines[9] = "?,1,red,long", "2003-01-01,1,None,long", "2003-02-01,-1,red,long"
    Path("rows.csv").write_text("\n".join(["since,length,color,kind", *lines]) + "\n")
    trained(netspec, DROPPED)
    result = exported(netspec)
    assert "  leaving out rows with missing values in `since`, `length`, `color`\n" in result.err
    expected = class_lines("row", "rows.csv")
    assert len(expected) == 13
    done = run_script("rows.csv")
    assert done.out.splitlines() == expected
    assert done.err.splitlines() == [
        f"note: rows.csv: 1 of 16 rows left out: `{column}` is missing in row {row}"
        for column, row in (("since", 4), ("length", 10), ("color", 6))
    ]
    Path("lost.csv").write_text("since,length,color\n,1,red\n")
    done = run_script("lost.csv")
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith("error: lost.csv: no row is left\n")


def test_the_script_for_arrays_explains_what_it_takes(netspec, trained):
    netspec.ok("export", "run", "--output", "deployed")
    Path("rows.csv").write_text("a,b\n1,2\n")
    expected = "the model takes arrays (features) in an .npz file; README.md lists what it does not contain"
    assert script_error("rows.csv") == f"error: rows.csv: {expected}"


def test_the_script_refuses_images_of_another_size(netspec, current_folder):
    netspec.ok("export", "lenet_mnist", "--output", "deployed")
    Image.new("RGB", (30, 28)).save("wide.png")
    Image.new("RGB", (28, 28)).save("fits.png")
    expected = "the image has 30 × 28 pixels, but the model takes 28 × 28"
    assert script_error("wide.png") == f"error: wide.png: {expected}"
    (answer,) = script_json("fits.png")
    assert answer["file"] == "fits.png"
    assert answer["probability"] == max(answer["probabilities"]) == answer["probabilities"][answer["class"]]


def test_the_script_for_photos_reports_a_mistake_in_a_line(netspec, photos):
    trained(netspec, PHOTOS.replace("STEPS", STEPS["bilinear"]))
    exported(netspec)
    assert script_error("no.png") == "error: no.png: No such file or directory"
    assert script_error("train.yaml") == "error: train.yaml: cannot identify image file 'train.yaml'"
    mixed = [photos[0], "train.yaml", photos[1]]
    done = run_script(*mixed)
    assert (done.status, len(done.err.splitlines())) == (1, 1)
    assert done.out.splitlines() == class_lines("file", [photos[0], photos[1]])
    assert script_error(status=2) == "error: usage: python run.py [--json] IMAGE..."


DOCUMENTS = """
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [6], dtype: int32}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Embedding, from: text, input_dim: SIZE, output_dim: 3}
    - {type: Flatten}
    - {type: Dense, name: scores, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: Adam, learning_rate: 0.05}
train: {max_steps: 20}
data:
  train:
    {SOURCE, batch_size: 4, tokenizer: {TOKENIZER}, transforms: [{type: Padding, length: 6PADDING}]}
"""
WORDS = "type: words, lowercase: true, normalize: NFC, padding: true, unknown: true"
CHARACTERS = "type: characters, padding: true, unknown: true"
PAIRS = "type: byte_pairs, size: 270, padding: true, lowercase: true"
TEXTS = {
    "bad": ["Not good.", "don't buy, it's a sham", "Caf\u0065\u0301 trop cher\r\nnon", "x"],
    "good": ["Good!", "I like it: very very good value", "Straße İstanbul ΣΟΦΟΣ", "\ufeffyes\u00a0yes"],
}


@pytest.fixture
def texts(current_folder: Path) -> list[str]:
    """Texts as files of class folders, and as the lines of a file."""
    for name, documents in TEXTS.items():
        Path("texts", name).mkdir(parents=True)
        for index, document in enumerate(documents):
            Path("texts", name, f"{index}.txt").write_bytes(document.encode())
        lines = "\n\n".join(document.replace("\r\n", " ") for document in documents)
        Path(f"{name}.txt").write_bytes(lines.encode())
    return sorted(map(str, Path("texts").glob("*/*.txt")))


@pytest.mark.parametrize("padding", ["", ", padding: pre, truncating: pre"], ids=["post", "pre"])
@pytest.mark.parametrize("tokenizer", [WORDS, CHARACTERS, PAIRS], ids=["words", "characters", "pairs"])
def test_the_script_computes_tokens_of_texts(netspec, texts, tokenizer, padding):
    if tokenizer == PAIRS:
        pytest.importorskip("tokenizers")
    text = DOCUMENTS.replace("SOURCE", "source: documents, path: texts").replace("TOKENIZER", tokenizer)
    trained(netspec, text.replace("PADDING", padding).replace("SIZE", "300"))
    result = exported(netspec)
    assert "deployed/vocabulary.json" in json.dumps(netspec("export", "run", "--output", "deployed", "--json").json)
    assert "`text`: tokens of texts" in result.err
    assert script_lines(*texts) == class_lines("file", texts)
    assert len({line.split(": ")[1].split()[0] for line in class_lines("file", texts)}) == 2
    Path("new.txt").write_text("☃ ☂")
    Path("empty.txt").write_text("")
    notes = [f"note: 1 text has no token of the vocabulary: {name}" for name in ("new.txt", "empty.txt")]
    expected = {WORDS: notes, CHARACTERS: notes[1:], PAIRS: notes[1:]}[tokenizer]
    assert script_notes("new.txt", "empty.txt") == expected
    assert len(predict("run", ["new.txt", "empty.txt"]).unknown) == bool(expected)


def test_the_script_reads_lines_of_texts(netspec, texts):
    source = "source: documents, documents: lines, path: [bad.txt, good.txt], classes: [bad, good]"
    text = DOCUMENTS.replace("SOURCE", source).replace("TOKENIZER", WORDS.replace(", unknown: true", ""))
    trained(netspec, text.replace("PADDING", "").replace("SIZE", "300"))
    exported(netspec)
    numbered = [line.split(": ", 1)[1] for line in script_lines("good.txt")]
    assert numbered == [line.split(": ", 1)[1] for line in class_lines("row", "good.txt")]
    Path("other.txt").write_text("nobody knows")
    assert script_error("other.txt") == "error: other.txt: 'nobody' is not in the vocabulary"
    Path("latin.txt").write_bytes(b"good\nb\xe4d\n")
    advice = "`iconv -f latin1 -t utf8` converts older files"
    assert script_error("latin.txt") == f"error: latin.txt: line 2 is not text in UTF-8; {advice}"
    piped = run_script("-", content=Path("good.txt").read_bytes())
    assert [line.split(": ", 1)[1] for line in piped.out.splitlines()] == numbered
    readme = Path("deployed/README.md").read_text(encoding="utf-8")
    assert "values in place of zeros (`tokens_of_text` in `run.py` returns the tokens of a text):" in readme
    lines = [line.split(": ", 1)[1] for path in ("texts/bad", "texts/good") for line in script_lines(path)]
    assert len(lines) == len(class_lines("row", "texts"))


FORECAST = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [6, 4]}, past: {shape: [6]}, label: {shape: [HORIZON]}}
  layers:
    - {type: Flatten, from: features}
    - {type: Concatenate, from: [flatten, past]}
    - {type: Dense, name: next, units: UNITS}
  losses: [{type: MeanSquaredError, from: [next, label]}]
  metrics: [{type: MeanAbsoluteError, name: mae, from: [next, label]}]
solver: {type: Adam, learning_rate: 0.05}
train: {max_steps: 20}
data:
  train:
    source: csv
    path: sales.csv
    header: true
    label: sold
    batch_size: 8
    windows: {length: 6, horizon: HORIZONGROUP}
    split: {test: 0.2, time: day}
    columns:
      day: {type: date, parts: [weekday, month], normalization: standard}
      price: {type: numeric, normalization: standard, missing: mean, missing_indicator: true}
      sold: {type: numeric, normalization: standard}
"""


@pytest.mark.parametrize("group", ["", ", group: shop"], ids=["one", "series"])
def test_a_forecast_takes_rows_and_gives_values_in_their_unit(netspec, current_folder, group):
    lines = [
        f"{shop},2024-{1 + index // 28:02}-{1 + index % 28:02},{'' if index % 7 == 3 else 9 + index % 5},"
        f"{200 + 50 * shop + 10 * np.sin(index):.1f}"
        for shop in range(2 if group else 1)
        for index in range(60)
    ]
    Path("sales.csv").write_text("\n".join(["shop,day,price,sold", *lines]) + "\n")
    text = FORECAST.replace("HORIZON", "2").replace("UNITS", "2").replace("GROUP", group)
    trained(netspec, text)
    result = exported(netspec)
    assert "day [N, 6], price [N, 6], sold [N, 6] → prediction [N, 2]" in result.out
    assert "in the model: 3 columns, predictions converted back to the unit of the target" in result.out
    answers = predict("run", "sales.csv").answers
    found = [re.split(": | ", line) for line in script_lines("sales.csv")]
    assert [int(row[0]) for row in found] == answers["row"]
    values = np.array([row[1:] for row in found], np.float64)
    expected = np.stack([answers["prediction_0"], answers["prediction_1"]], axis=1)
    objects = script_json("sales.csv")
    assert [answer["row"] for answer in objects] == answers["row"]
    np.testing.assert_allclose([answer["prediction"] for answer in objects], expected, rtol=1e-5)
    assert expected.min() > 100  # in units of the data
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    card = Path("deployed/README.md").read_text()
    assert "| data | samples | loss (normalized values) | mae (target's unit) |" in card
    mae = json.loads(Path("run/log.jsonl").read_text().splitlines()[-1])["test"]["in_units"]["mae"]
    assert f" {mae:.4f} |" in card
    rows = lines[:6]
    note = "note: steps in `day` differ from the training data, the first before row 7"
    Path("new.csv").write_text("\n".join(["shop,day,price,sold", *rows, lines[30]]) + "\n")
    assert script_notes("new.csv") == [note]
    Path("new.csv").write_text("\n".join(["shop,day,price,sold", *rows[::-1]]) + "\n")
    assert script_error("new.csv") == "error: new.csv: row 2 is earlier than the row before: sort by day"


def test_the_script_of_a_forecast_knows_the_days_of_the_week_without_rows(netspec, current_folder):
    days = [date(2024, 1, 1) + timedelta(index) for index in range(84) if index % 7 < 5]
    rows = [f"{day},{9 + index % 5},{100 + index % 7}" for index, day in enumerate(days)]
    Path("sales.csv").write_text("\n".join(["day,price,sold", *rows]) + "\n")
    trained(netspec, FORECAST.replace("HORIZON", "2").replace("UNITS", "2").replace("GROUP", ""))
    exported(netspec)
    Path("new.csv").write_text("\n".join(["day,price,sold", *rows[:12]]) + "\n")
    assert script_notes("new.csv") == []
    Path("new.csv").write_text("\n".join(["day,price,sold", *rows[:7], *rows[8:12]]) + "\n")
    assert script_notes("new.csv") == ["note: steps in `day` differ from the training data, the first before row 8"]


def test_the_script_reads_times_and_dates_of_parquet_files(netspec, current_folder):
    days = [date(2024, 1, 1) + timedelta(index) for index in range(60)]
    text = FORECAST.replace("HORIZON", "1").replace("shape: [1]", "shape: []").replace("UNITS", "1")
    text = text.replace("GROUP", "").replace("time: day", "time: 'day {UTC} \"1\"', time_format: '%Y-%d-%m'")
    text = text.replace("day: {", "'day {UTC} \"1\"': {format: '%Y-%d-%m', ")
    rows = [f"{day:%Y-%d-%m},{9 + index % 5},{100 + index % 7}" for index, day in enumerate(days)]
    head = '"day {UTC} ""1""",price,sold'
    Path("sales.csv").write_text("\n".join([head, *rows]) + "\n")
    trained(netspec, text)
    exported(netspec)
    name = 'day {UTC} "1"'
    columns = {name: days[:9], "price": [9.0] * 9, "sold": [100.0 + index for index in range(9)]}
    pq.write_table(pa.table(columns), "new.parquet")
    answers = predict("run", "new.parquet").answers
    lines = [re.split(": | ", line) for line in script_lines("new.parquet")]
    assert [int(row[0]) for row in lines] == answers["row"]
    np.testing.assert_allclose([float(row[1]) for row in lines], answers["prediction"], rtol=1e-5)
    Path("new.csv").write_text("\n".join([head, *rows[:6], "Monday,9,100"]) + "\n")
    assert script_error("new.csv") == f"error: new.csv: row 7: cannot read {name} 'Monday'"
    Path("new.csv").write_text("\n".join([head, *rows[:6][::-1]]) + "\n")
    assert script_error("new.csv") == f"error: new.csv: row 2 is earlier than the row before: sort by {name}"
    Path("new.csv").write_text("\n".join([head, *rows[:6], rows[20]]) + "\n")
    assert script_notes("new.csv") == [f"note: steps in `{name}` differ from the training data, the first before row 7"]


@pytest.mark.parametrize("group", ["", ", group: shop"], ids=["one", "series"])
def test_windows_of_the_script_have_no_gaps(netspec, current_folder, group):
    lines = [
        f"{index // 31},2024-{1 if group else 1 + 2 * (index // 31):02}-{1 + index % 31:02},{9 + index % 5},"
        f"{100 + index % 7}"
        for index in range(62)
    ]
    lines[11], lines[40] = "0,2024-01-12,?,101", lines[40].replace(",9,", ",,")
    Path("sales.csv").write_text("\n".join(["shop,day,price,sold", *lines]) + "\n")
    text = FORECAST.replace("HORIZON", "1").replace("shape: [1]", "shape: []").replace("UNITS", "1")
    text = text.replace("missing: mean, missing_indicator: true", "missing: drop").replace("[6, 4]", "[6, 3]")
    trained(netspec, text.replace("GROUP", group))
    exported(netspec)
    answers = predict("run", "sales.csv").answers
    found = [re.split(": | ", line) for line in script_lines("sales.csv")]
    assert [int(row[0]) for row in found] == answers["row"]
    assert answers["row"][5:7] == [11, 18]  # row 12 is left out
    np.testing.assert_allclose([float(row[1]) for row in found], answers["prediction"], rtol=1e-5)
