"""The HTTP interface of a service: the Open Inference Protocol, `/predict`, limits, metrics and many clients."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.schema.plain_json import json_bytes
from netspec.tools.serving.application import ServingLimits
from tests.tools.serving.conftest import HOMES, SALES, features, sales_run

INFER = "/v2/models/fruit/infer"
HEADER = "Inference-Header-Content-Length"


def tensor(array: Any, **fields: Any) -> dict[str, Any]:
    data = {} if "parameters" in fields else {"data": array.ravel().tolist()}
    return {"name": "features", "shape": list(array.shape), "datatype": "FP32", **data, **fields}


def expected(run: Path, array: Any) -> Any:
    return netspec.load(run, device="reference").predict({"features": array})["logits"]


def test_health_and_metadata(fruit):
    assert fruit.get("/v2/health/live")[0] == fruit.get("/v2/health/ready")[0] == 200
    assert fruit.get("/v2") == (200, {"name": "netspec", "version": "0", "extensions": ["binary_tensor_data"]})
    model = {
        "name": "fruit",
        "versions": ["1"],
        "platform": "netspec",
        "inputs": [{"name": "features", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}],
    }
    assert fruit.get("/v2/models/fruit") == fruit.get("/v2/models/fruit/versions/1") == (200, model)
    assert fruit.get("/v2/models/fruit/ready") == (200, {"name": "fruit", "ready": True})
    for path in ("/v2/models/pear", "/v2/models/fruit/versions/2", "/v2/models/pear/ready", "/nowhere"):
        status, answer = fruit.get(path)
        assert (status, list(answer)) == (404, ["error"])
    assert fruit.get(INFER) == (405, {"error": "GET is not allowed here"})


@pytest.mark.parametrize("nested", [False, True])
def test_tensors_as_json(fruit, table_run, nested):
    array = features(5)
    sent = tensor(array, data=array.tolist()) if nested else tensor(array)
    status, answer = fruit.post(INFER, {"id": "request 7", "inputs": [sent]})
    assert status == 200
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("fruit", "1", "request 7")
    (logits,) = answer["outputs"]
    assert (logits["name"], logits["datatype"], logits["shape"]) == ("logits", "FP32", [5, 2])
    np.testing.assert_allclose(np.reshape(logits["data"], (5, 2)), expected(table_run, array), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", ["each", "all"])
def test_tensors_as_binary_data(fruit, table_run, choice):
    array = features(4)
    message: dict[str, Any] = {"inputs": [tensor(array, parameters={"binary_data_size": array.nbytes})]}
    if choice == "all":
        message["parameters"] = {"binary_data_output": True}
    else:
        message["outputs"] = [{"name": "logits", "parameters": {"binary_data": True}}]
    head = json.dumps(message).encode()
    status, body, headers = fruit.request("POST", INFER, head + array.tobytes(), {HEADER: str(len(head))})
    assert (status, headers["Content-Type"]) == (200, "application/octet-stream")
    length = int(headers[HEADER])
    (logits,) = json.loads(body[:length])["outputs"]
    assert logits["parameters"] == {"binary_data_size": 32}
    actual = np.frombuffer(body[length:], "<f4").reshape(logits["shape"])
    np.testing.assert_allclose(actual, expected(table_run, array), rtol=1e-5, atol=1e-6)


ONE = np.zeros((1, 4), np.float32)
MISTAKES = {
    "not JSON": (b"{", "not valid JSON"),
    "not an object": ([], "must be an object"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "NaN": (b'{"inputs": NaN}', "NaN is not a JSON value"),
    "a huge number": (b'{"inputs": [' + b"9" * 5000 + b"]}", "not valid JSON"),
    "no inputs": ({}, '"inputs" must be a list'),
    "no name": ({"inputs": [{}]}, "has no name"),
    "an unknown input": ({"inputs": [tensor(ONE, name="colour")]}, "the net has no input `colour`"),
    "an input twice": ({"inputs": [tensor(ONE)] * 2}, "occurs twice"),
    "an unknown output": ({"inputs": [tensor(ONE)], "outputs": [{"name": "x"}]}, "no output `x`; it has logits"),
    "wrong outputs": ({"inputs": [tensor(ONE)], "outputs": ["logits"]}, '"outputs" must be a list of objects'),
    "a wrong shape": ({"inputs": [tensor(ONE, shape=[4, 1])]}, "expected float32 of shape [N, 4] with N ≥ 1"),
    "no samples": ({"inputs": [tensor(ONE[:0])]}, "with N ≥ 1; got [0, 4]"),
    "a negative size": ({"inputs": [tensor(ONE, shape=[-1, 4])]}, "must be a list of sizes"),
    "too few elements": ({"inputs": [tensor(ONE, data=[1, 2])]}, "has 2 elements, but its shape [1, 4] has 4"),
    "ragged data": ({"inputs": [tensor(ONE, data=[[1], [1, 2]])]}, "rows of different lengths"),
    "text": ({"inputs": [tensor(ONE, data=["1", "2", "3", "4"])]}, "not all of the datatype FP32"),
    "null": ({"inputs": [tensor(ONE, data=[1, None, 3, 4])]}, "not all of the datatype FP32"),
    "a type": ({"inputs": [tensor(ONE, datatype="BYTES")]}, "must be one of BOOL"),
    "parameters": ({"inputs": [tensor(ONE)], "parameters": 3}, '"parameters" must be an object'),
    "missing bytes": ({"inputs": [tensor(ONE, parameters={"binary_data_size": 16})]}, "0 bytes are left"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_inference_request_has_status_400(fruit, mistake):
    body, message = MISTAKES[mistake]
    status, error = fruit.error(INFER, body)
    assert status == 400
    assert message in error


@pytest.mark.parametrize("length", ["-1", "9999", "x", "²"])
def test_a_wrong_length_of_the_json_part_has_status_400(fruit, length):
    status, body, _ = fruit.request("POST", INFER, b"{}", {HEADER: length.encode("utf-8").decode("latin-1")})
    assert status == 400
    assert HEADER in json.loads(body)["error"]


def test_integers_out_of_range_are_refused_not_wrapped(fruit):
    sent = tensor(ONE, datatype="UINT8", data=[1, 2, 3, 300])
    assert fruit.error(INFER, {"inputs": [sent]}) == (400, "elements of `features` are outside the range of UINT8")


def test_a_row_and_rows(fruit):
    apple, grape = {"size": 9, "color": "red"}, {"size": 1.1, "color": "green"}
    status, answer = fruit.post("/predict", apple)
    assert (status, answer["model"]) == (200, "fruit")
    (only,) = answer["answers"]
    assert (only["row"], only["class"]) == (1, "apple")
    assert only["probability"] > 0.9
    for body in ([grape, apple], {"rows": [grape, apple]}, b"size,color\n1.1,green\n9,red\n"):
        status, answer = fruit.post("/predict", body)
        assert [row["class"] for row in answer["answers"]] == ["grape", "apple"]


def test_rows_have_the_answers_of_netspec_predict(fruit, table_run, tmp_path):
    (tmp_path / "new.csv").write_text("size,color\n4.5,red\n,green\n3,\n")
    rows = [{"size": 4.5, "color": "red"}, {"size": None, "color": "green"}, {"size": "3"}]
    answers = fruit.post("/predict?top=2", rows)[1]["answers"]
    table = netspec.predict(table_run, tmp_path / "new.csv", top=2, device="reference").answers
    assert [list(answer) for answer in answers] == [list(table)] * 3
    for name, values in table.items():
        actual = [answer[name] for answer in answers]
        assert actual == (pytest.approx(values, rel=1e-5) if name.startswith("probability") else values)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is empty"),
        (b'{"size": ', 400, "not valid JSON"),
        ({"size": 1, "colour": "red"}, 422, "no row has the key 'color'; "),
        ({"size": "big", "color": "red"}, 422, "row 1: `size` is not a number; got 'big'"),
        ({"size": True, "color": "red"}, 422, "row 1: `size` is not a number; got true"),
        ({"size": "1,5", "color": "red"}, 422, "got '1,5'; write numbers such as 1234.5"),
        ({"size": "3 kg", "color": "red"}, 422, "got '3 kg'; write numbers of this column without `kg`"),
        ({"size": "n.a.", "color": "red"}, 422, "got 'n.a.'; null is a missing value"),
        ({"size": [1], "color": "red"}, 422, "row 1: `size` is not a single value"),
        ([{"size": 1, "color": "red"}, {"size": "x", "color": "red"}], 422, "row 2: `size` is not a number"),
        ({"shape": 1}, 422, "no row has the keys 'color', 'size'; expected rows with the keys 'color', 'size'; got "),
        ({"instances": [{"size": 1, "color": "red"}]}, 422, "got the key 'instances'"),
        ([[1, "red"]], 400, 'row 1 is [1, "red"]; expected a row such as {"size": 5.07, "color": "green"}, or a list'),
        ([{"size": 1, "color": "red"}, 5], 400, 'row 2 is 5; expected a row such as {"size": 5.07, "color": "green"}'),
        ([{"size": 1, "color": "red"}, []], 400, "row 2 is []; expected a row"),
        ([], 400, "expected a row"),
        ({}, 400, 'expected a row such as {"size": 5.07, "color": "green"}, or a list of rows; got {}'),
        (5, 400, "or a list of rows; got 5"),
        (b"5", 400, "or a list of rows; got 5"),
        (b'"x"', 400, 'or a list of rows; got "x"'),
        (b"size;color\n1;red\n", 422, 'the line is a single cell: separate cells by ","'),
        (b"size,color\nbig,red\n", 422, "row 1: column `size` has text here; expected a number; got 'big'"),
        (b'size,color\n"9,red\n', 422, "line 2: this row cannot be read; expected cells in matching quotes"),
        (
            b"size,color\n9,r\xe9d\n",
            422,
            "row 1: this row is not UTF-8 text; expected text in UTF-8; got the byte 0xe9",
        ),
        (
            b"size,size,color\n9,8,red\n",
            422,
            "two columns are called 'size'; expected a different name for each column",
        ),
        (b"\x00\x01", 422, "the body is not a table; expected rows as JSON or CSV; got a file that begins with"),
        (b"PAR1", 422, "the body is damaged; expected a complete Parquet file"),
        ({"size": 1, "color": "\ud83d"}, 422, "a text has half of a surrogate pair; expected Unicode characters"),
    ],
)
def test_a_wrong_row(fruit, body, status, message):
    actual, error = fruit.error("/predict", body)
    assert (actual, message in error) == (status, True)
    assert "/tmp" not in error


def test_missing_keys_of_columns_that_may_be_empty_are_noted(serve, tmp_path):
    (tmp_path / "train.yaml").write_text(HOMES)
    (tmp_path / "homes.csv").write_text("size,rooms,price\n1,2,3\n2,,4\n")
    run = tmp_path / "run"
    netspec.train(tmp_path / "train.yaml", run_dir=run, device="reference")
    client = serve(run)
    answers = client.post("/predict", {"size": 9, "rooms": None})[1]
    assert "notes" not in answers
    for row in ({"size": 9}, {"size": 9, "price": 7}):
        answer = client.post("/predict", row)[1]
        assert answer["answers"] == answers["answers"]
        assert answer["notes"] == ["keys that rows do not have count as null: `rooms` is missing in row 1"]
    rows = [{"size": 9, "rooms": 2}, {"size": 9}, {"size": 1}]
    notes = ["keys that rows do not have count as null: `rooms` is missing in rows 2, 3"]
    assert client.post("/predict", rows)[1]["notes"] == notes
    assert list(netspec.predict(run, rows, device="reference").missing_key_notes) == notes
    with pytest.warns(UserWarning, match="`rooms` is missing in rows 2, 3") as warned:
        netspec.load(run, device="reference").predict(rows)
    assert warned[0].filename == __file__
    status, error = client.error("/predict", {"size": 9, "room": 2})
    assert (status, "has the key 'rooms'" in error, "did you mean `room` as `rooms`?" in error) == (422, True, True)
    status, error = client.error("/predict", {"rooms": 9})
    assert (status, error) == (
        422, "no row has the key 'size'; expected rows with the keys 'rooms', 'size'; got the key 'rooms'"
    )  # fmt: skip


def test_keys_that_are_not_columns_are_noted(fruit, table_run):
    rows = [{"size": 9, "color": "red", "id": 7}, {"size": 9, "color": "red", "fruit": "apple", "tags": ["a"]}]
    notes = ["keys that are not columns of the model are ignored: `id`, `tags`"]
    assert fruit.post("/predict", rows)[1]["notes"] == notes
    assert list(netspec.predict(table_run, rows, device="reference").unread_key_notes) == notes


def test_columns_by_number_are_columns_of_the_model(serve, tmp_path):
    spec = HOMES.replace("{size: numeric, rooms: {type: numeric, missing: 3}, price: numeric}", "[1, 2]")
    (tmp_path / "train.yaml").write_text(spec.replace("label: price", "label: 3"))
    (tmp_path / "homes.csv").write_text("size,rooms,price\n1,2,3\n2,1,4\n")
    netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference")
    client = serve(tmp_path / "run")
    answer = client.post("/predict", {"size": 9, "rooms": 2, "price": 1, "id": 4})[1]
    assert answer["notes"] == ["keys that are not columns of the model are ignored: `id`"]
    assert list(client.post("/predict", client.get("/predict")[1]["example"])[1]) == ["model", "answers"]


def test_concurrent_requests_have_their_own_notes(fruit):
    row = {"size": 9, "color": "red"}

    def ask(number):
        wrong = number % 2 == 1
        return wrong, "notes" in fruit.post("/predict", [row | ({"id": 7} if wrong else {})] * (1 + number % 40))[1]

    with ThreadPoolExecutor(8) as threads:
        assert [number for number, (wrong, noted) in enumerate(threads.map(ask, range(200))) if wrong != noted] == []


def test_problems_of_a_request_do_not_mention_the_training(serve, tmp_path):
    spec = HOMES.replace(
        "size: numeric", "size: {type: categorical}, day: {type: date, parts: [day], format: '%d.%m.%Y'}"
    )
    (tmp_path / "train.yaml").write_text(spec.replace("features: {shape: [2]}", "features: {shape: [4]}"))
    (tmp_path / "homes.csv").write_text("size,day,rooms,price\nbig,1.2.2026,2,3\nsmall,3.2.2026,,4\n")
    netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference")
    client = serve(tmp_path / "run")
    row = {"size": "big", "day": "5.6.2026", "rooms": 2}
    assert client.post("/predict", row)[0] == 200
    example = "write dates such as 20.11.2026"
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"size": "huge"}, "row 1: 'huge' is not a known category of `size`; expected one of big, small"),
        ({"size": None}, "row 1: `size` has no value here; expected a category; got null"),
        (
            {"day": "2026-06-05"},
            f"row 1: `day` has no date here that can be read; expected `%d.%m.%Y`; got '2026-06-05'; {example}",
        ),
        ({"day": None}, "row 1: `day` has no value here; expected a date; got null"),
    ]
    for wrong, error in mistakes:
        assert client.error("/predict", {**row, **wrong}) == (422, error)


def test_the_notation_of_numbers_and_the_target_are_described(serve, tmp_path):
    columns = "{size: {type: numeric, unit: m²}, rooms: {type: numeric, missing: 3}, price: {type: numeric, unit: EUR}}"
    spec = re.sub("columns: .*", f'columns: {columns}\n    delimiter: ";"\n    decimal: ","\n    thousands: "."', HOMES)
    (tmp_path / "train.yaml").write_text(spec)
    (tmp_path / "homes.csv").write_text("size;rooms;price\n1,5 m²;2;3 EUR\n2 m²;;4,5 EUR\n")
    netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference")
    about = serve(tmp_path / "run").get("/predict")[1]
    notation = {"decimal": ",", "thousands": "."}
    assert about["columns"] == [
        {"name": "size", "type": "numeric", **notation, "unit": "m²"},
        {"name": "rooms", "type": "numeric", "optional": True, **notation},
    ]
    assert about["outputs"] == {"y": {"target": "price", "unit": "EUR"}}


@pytest.mark.parametrize("top", ["0", "x", "99999999999"])
def test_a_wrong_number_of_classes(fruit, top):
    assert fruit.error(f"/predict?top={top}", {"size": 1, "color": "red"})[0] == 400


def test_an_unknown_parameter_is_refused(fruit):
    status, error = fruit.error("/predict?topp=2", {"size": 1, "color": "red"})
    assert (status, error) == (400, "/predict has no parameter `topp`: did you mean `top`?")
    assert fruit.error("/predict?x=2", {"size": 1, "color": "red"})[1] == "/predict has no parameter `x`: it has `top`"


def test_answers_are_utf_8(fruit):
    _, body, headers = fruit.request("POST", "/predict", json.dumps({"größe": 1}))
    assert headers["Content-Type"] == "application/json"
    assert "got the key 'größe'" in body.decode()
    assert json_bytes(["ü", "\ud83d", float("nan")]) == '["ü", "\\ud83d", null]'.encode()


def test_a_form_is_refused_with_a_hint(fruit):
    status, error = fruit.error("/predict", b"--x", **{"Content-Type": "multipart/form-data; boundary=x"})
    assert (status, "--data-binary" in error) == (415, True)


def picture(gray: int, kind: str = "PNG") -> bytes:
    file = BytesIO()
    Image.new("L", (9, 7), gray).save(file, kind)
    return file.getvalue()


def test_images(serve, image_run):
    client = serve(image_run)
    assert client.get("/predict")[1] == {
        "model": "brightness", "kind": "image", "columns": [], "classes": {"logits": ["dark", "light"]},
    }  # fmt: skip
    for gray, name in ((10, "dark"), (250, "light")):
        status, answer = client.post("/predict", picture(gray))
        assert (status, answer["answers"][0]["class"]) == (200, name)
        assert list(answer["answers"][0]) == ["class", "probability"]
    for kind in ("JPEG", "WEBP", "BMP", "GIF", "TIFF"):
        assert client.post("/predict", picture(250, kind))[1]["answers"][0]["class"] == "light"
    assert client.error("/predict", b"hello") == (
        422, "the body is not an image; expected a PNG, JPEG, WebP, BMP, GIF or TIFF file; got a text file"
    )  # fmt: skip
    status, error = client.error("/predict", picture(10)[:40])
    assert (status, error.partition(";")[0]) == (422, "the body cannot be read")


@pytest.mark.parametrize(
    ("body", "kind", "classes"),
    [
        (b"nice", "text/plain", ["good"]),
        (b"awful", "application/x-www-form-urlencoded", ["bad"]),
        (b'{"text": "nice great"}', "application/json", ["good"]),
        (b'{"text": "awful"}', "application/x-www-form-urlencoded", ["bad"]),
        (b'["awful", "nice"]', "application/json; charset=utf-8", ["bad", "good"]),
        (b' ["awful", "nice"]', "application/x-www-form-urlencoded", ["bad", "good"]),
        (b'{"txt": "awful"}', "text/plain", ["bad"]),
    ],
)
def test_texts(serve, text_run, body, kind, classes):
    status, answer = serve(text_run, max_batch=2).post("/predict", body, **{"Content-Type": kind})
    assert (status, [each["class"] for each in answer["answers"]]) == (200, classes)


def test_texts_are_described_by_their_key(serve, text_run):
    assert serve(text_run, max_batch=2).get("/predict")[1]["columns"] == [{"name": "text", "type": "text"}]


def test_a_blank_text_is_an_error(serve, text_run, text_table_run):
    for run in (text_run, text_table_run):
        for kind in ("application/x-www-form-urlencoded", "text/plain"):
            error = serve(run, max_batch=1).error("/predict", b" \n", **{"Content-Type": kind})
            assert error == (422, "the body is blank; expected a text")


def test_a_table_may_lack_columns_whose_cells_may_be_empty(fruit):
    complete = fruit.post("/predict", b"size,color\n,red\n", **{"Content-Type": "text/csv"})[1]
    assert "notes" not in complete
    answer = fruit.post("/predict", b"color,shop\nred,A\n", **{"Content-Type": "text/csv"})[1]
    assert answer["answers"] == complete["answers"]
    assert answer["notes"] == [
        "the column `size` is missing, so all cells count as empty; columns that are not read: `shop`"
    ]


def test_texts_without_known_words_are_noted(serve, text_run, text_table_run):
    for run in (text_run, text_table_run):
        client = serve(run, max_batch=2)
        assert "notes" not in client.post("/predict", ["nice day", "awful"])[1]
        status, answer = client.post("/predict", ["nice", "fine day", "awful", ""])
        assert (status, len(answer["answers"])) == (200, 4)
        assert answer["notes"] == ["2 texts have no token of the vocabulary: text 2, text 4"]


def test_other_keys_of_a_text_are_noted(serve, text_run, text_table_run):
    for run in (text_run, text_table_run):
        client = serve(run, max_batch=1)
        assert client.post("/predict", {"text": "nice", "language": "en"})[1]["notes"] == [
            "keys that are not columns of the model are ignored: `language`"
        ]


def test_unknown_categories_are_noted(fruit):
    rows = [{"size": 9, "color": "blue"}, {"size": 9, "color": None}, {"size": 9, "color": "red"}]
    assert fruit.post("/predict", rows)[1]["notes"] == [
        "1 row of `color` has values that the training data does not have, such as 'blue'"
    ]


def test_wrong_texts(serve, text_run):
    client = serve(text_run, max_batch=2)
    status, error = client.error("/predict", ["nice", "\ud83d"])
    assert (status, "half of a surrogate pair" in error) == (422, True)
    assert client.error("/predict", ["nice", "\0"])[1].startswith("text 2 has a NUL byte")
    assert client.error("/predict", b"text\nnice\nawful\n", **{"Content-Type": "text/csv"}) == (
        415, 'the model takes texts, not a table: send a text, or {"text": ["…", "…"]}'
    )  # fmt: skip
    assert client.error("/predict", b"\xff") == (400, "the text is not UTF-8")
    expected = 'expected {"text": "…"}, or a list of texts'
    assert client.error("/predict", {"text": 3}) == (400, expected)
    for texts in (["nice", None], {"text": ["nice", None]}):
        assert client.error("/predict", texts) == (400, f"text 2 is null; {expected}")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.error("/predict", b'{"txt": "awful"}', **form) == (400, expected)
    assert client.error("/predict", b'{"txt": "awful"}') == (400, expected)
    status, error = client.error("/predict", b'{"text": "awful}', **form)
    assert (status, error.startswith("the body is not valid JSON")) == (400, True)
    assert client.post("/predict", b"[sic] awful", **form)[0] == 200


@pytest.mark.parametrize(
    ("body", "kind", "classes"),
    [
        (b"nice great", "text/plain", ["good"]),
        (b'"nice" great', "application/x-www-form-urlencoded", ["good"]),
        (b'{"text": ["awful poor", "nice great"]}', "application/x-www-form-urlencoded", ["bad", "good"]),
        (b'["awful poor", "nice great"]', "application/json", ["bad", "good"]),
        (b'{"review": "awful poor"}', "application/json", ["bad"]),
        (b'[{"review": "nice great"}, {"text": "awful poor"}]', "application/json", ["good", "bad"]),
        (b"review\nawful poor\nnice great\n", "application/x-www-form-urlencoded", ["bad", "good"]),
        (b"review\nawful poor\n", "text/csv", ["bad"]),
    ],
)
def test_texts_for_a_table_of_texts(serve, text_table_run, body, kind, classes):
    status, answer = serve(text_table_run, max_batch=2).post("/predict", body, **{"Content-Type": kind})
    assert (status, [each["class"] for each in answer["answers"]]) == (200, classes)


def test_a_table_of_texts_is_described_as_texts(serve, text_table_run):
    client = serve(text_table_run, max_batch=2)
    description = client.get("/predict")[1]
    columns = [{"name": "review", "type": "text", "optional": True}]
    assert (description["kind"], description["columns"]) == ("text", columns)
    status, error = client.error("/predict", {"reviw": "nice"})
    assert status == 422
    assert error == (
        "no row has the key 'review'; expected rows with the key 'review'; got the key 'reviw'; "
        "did you mean `reviw` as `review`?"
    )


def test_the_page_asks_for_the_columns_of_the_table(fruit):
    status, page, headers = fruit.request("GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert not re.search(rb"https?://|src=|<link", page), "the page loads nothing from elsewhere"
    assert fruit.get("/predict")[1] == {
        "model": "fruit",
        "kind": "table",
        "columns": [
            {"name": "size", "type": "numeric", "optional": True},
            {"name": "color", "type": "categorical", "values": ["green", "red"], "optional": True},
        ],
        "classes": {"logits": ["apple", "grape"]},
        "outputs": {"logits": {"target": "fruit"}},
        "example": {"size": 5.07, "color": "green"},
    }


@pytest.mark.parametrize("run", ["table_run", "text_run", "text_table_run", "language_run"])
def test_the_example_can_be_sent_as_it_is(serve, request, run):
    client = serve(request.getfixturevalue(run), max_batch=1)
    status, answer = client.post("/predict", client.get("/predict")[1]["example"])
    assert (status, list(answer)) == (200, ["model", "answers"])


def test_the_example_of_a_time_series_is_one_of_its_rows(serve, tmp_path):
    client = serve(sales_run(tmp_path, "{temperature: numeric, sales: numeric}"), max_batch=1)
    about = client.get("/predict")[1]
    assert client.post("/predict", [about["example"]] * about["min_rows"])[0] == 200


def test_a_net_that_reads_random_numbers_takes_arrays(serve):
    client = serve("dcgan_mnist", max_batch=1)
    assert client.get("/predict")[1]["kind"] == "arrays"
    message = "the model takes arrays: send them to /v2/models/dcgan_mnist/infer"
    assert client.error("/predict", picture(10)) == (422, message)


def test_a_body_that_is_too_long_has_status_413(serve, table_run):
    client = serve(table_run, ServingLimits(max_body=1000))
    for size in (1001, 1900, 3000):
        assert client.error("/predict", b"x" * size) == (413, "the body has more than 1000 bytes")
    connection = socket.create_connection(("127.0.0.1", client.port))
    with connection:  # without a length in the header
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall((b"%x\r\n" % 900 + b"x" * 900 + b"\r\n") * 2 + b"0\r\n\r\n")
        assert b" 413 " in connection.recv(100)


def test_a_request_without_its_body_has_status_504(serve, table_run):
    client = serve(table_run, ServingLimits(timeout=0.2))
    with socket.create_connection(("127.0.0.1", client.port), 10) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(1000)
    assert b" 504 " in answer
    assert b"there was no answer within 0.2 s" in answer


def test_too_many_requests_have_status_503(serve, table_run):
    client = serve(table_run, ServingLimits(max_requests=2))
    waiting = [socket.create_connection(("127.0.0.1", client.port), 10) for _ in range(2)]
    try:
        for connection in waiting:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        deadline = time.monotonic() + 10
        while client.service.metrics.in_progress < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        status, error = client.error("/predict", {"size": 1, "color": "red"})
        assert (status, error) == (503, "more than 2 requests at a time: try again later")
        assert client.get("/v2/health/live")[0] == 200
    finally:
        for connection in waiting:
            connection.close()


def test_concurrent_requests_share_batches(serve, table_run):
    client = serve(table_run, max_batch=8, max_delay=2.0)
    together = threading.Barrier(8)

    def ask(number):
        together.wait(10)
        return client.post(INFER, {"inputs": [tensor(np.full((1, 4), number, np.float32))]})[1]["outputs"][0]["data"]

    with ThreadPoolExecutor(8) as threads:
        actual = list(threads.map(ask, range(8)))
    array = np.arange(8, dtype=np.float32)[:, None].repeat(4, axis=1)
    np.testing.assert_allclose(actual, expected(table_run, array), rtol=1e-5, atol=1e-6)
    text = client.request("GET", "/metrics")[1].decode()
    assert "netspec_batch_samples_sum 8\nnetspec_batch_samples_count 1\n" in text


@pytest.mark.slow
def test_many_clients_get_their_own_answers(serve, table_run):
    client = serve(table_run)
    inputs = [features(number % 5 + 1) + number for number in range(20)]
    outputs = [expected(table_run, array) for array in inputs]
    end = time.monotonic() + 2

    def ask(number):
        count = 0
        while time.monotonic() < end:
            status, answer = client.post(INFER, {"inputs": [tensor(inputs[number])]})
            assert status == 200
            actual = np.reshape(answer["outputs"][0]["data"], outputs[number].shape)
            np.testing.assert_allclose(actual, outputs[number], rtol=1e-4, atol=1e-4)
            count += 1
        return count

    with ThreadPoolExecutor(20) as threads:
        counts = list(threads.map(ask, range(20)))
    assert min(counts) > 0
    text = client.request("GET", "/metrics")[1].decode()
    route = "POST /v2/models/{model}/infer"
    assert f'netspec_requests_total{{route="{route}",status="200"}} {sum(counts)}\n' in text


SERIES = re.compile(r'^[a-z_]+(\{([a-z]+="[^"\\\n]*",?)*\})? [0-9.e+-]+$')


def test_metrics_are_prometheus_text(fruit):
    fruit.post("/predict", {"size": 9, "color": "red"})
    fruit.post("/predict", b"{")
    status, body, headers = fruit.request("GET", "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = body.decode().splitlines()
    assert not [line for line in lines if not line.startswith("# ") and not SERIES.match(line)]
    assert 'netspec_requests_total{route="POST /predict",status="200"} 1' in lines
    assert 'netspec_requests_total{route="POST /predict",status="400"} 1' in lines
    assert 'netspec_request_seconds_count{route="POST /predict"} 2' in lines
    assert 'netspec_batch_samples_bucket{le="+Inf"} 1' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))


VOCABULARY = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [4]}, weight: {shape: []}, label: {shape: [], dtype: int32}}
  layers: [{name: logits, type: Dense, units: 2, from: features}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true, sample_weight: weight}]
data:
  train:
    source: csv
    path: fruit.csv
    header: true
    columns:
      size: numeric
      color: {type: categorical, vocabulary: [red, green]}
      picked: {type: date, format: "%d.%m.%Y", parts: [month]}
      trust: {type: numeric, field: weight}
      fruit: {type: categorical, vocabulary: [grape, apple]}
    label: fruit
    batch_size: 8
train: {max_steps: 1}
solver: {type: SGD, learning_rate: 0.5}
"""


def test_declared_categories_are_listed_and_columns_of_the_loss_are_not(serve, tmp_path):
    (tmp_path / "train.yaml").write_text(VOCABULARY)
    (tmp_path / "fruit.csv").write_text(
        "size,color,picked,trust,fruit\n" + "1,green,1.5.2026,1,grape\n9,red,2.6.2026,0.5,apple\n" * 8
    )
    netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference")
    client = serve(tmp_path / "run")
    about = client.get("/predict")[1]
    assert about["columns"] == [
        {"name": "size", "type": "numeric"},
        {"name": "color", "type": "categorical", "values": ["red", "green"]},
        {"name": "picked", "type": "date", "format": "%d.%m.%Y"},
    ]
    assert "min_rows" not in about
    assert client.post("/predict", {"size": 9, "color": "red", "picked": "3.4.2026"})[0] == 200


@pytest.mark.parametrize(
    ("columns", "listed"),
    [
        ("{temperature: numeric, sales: numeric}", ["sales", "shop"]),
        ("[temperature]", ["temperature", "sales", "shop"]),
    ],
)
def test_rows_of_a_time_series(serve, tmp_path, columns, listed):
    client = serve(sales_run(tmp_path, columns))
    about = client.get("/predict")[1]
    types = {"temperature": "numeric", "sales": "numeric", "shop": "categorical"}
    assert (about["min_rows"], about["horizon"], about["outputs"]) == (4, 2, {"forecast": {"target": "sales"}})
    assert "time" not in about
    assert about["columns"] == [{"name": name, "type": types[name]} for name in listed]
    row = {name: value for name, value in {"temperature": 9, "sales": 1.25, "shop": "north"}.items() if name in listed}
    assert len(client.post("/predict", [row] * 5)[1]["answers"]) == 2
    assert "too few rows for a prediction" in client.error("/predict", [row] * 3)[1]
    for name in listed:
        assert name in client.error("/predict", [{other: row[other] for other in row if other != name}] * 4)[1]


def test_notes_about_rows_of_a_time_series(serve, tmp_path):
    shop = "{type: categorical, unknown: index, missing: unknown}"
    run = sales_run(tmp_path, f"{{shop: {shop}, temperature: {{type: numeric, missing: 0}}, sales: numeric}}", 4)
    rows = [{"sales": 1.25, "shop": "west", "temperature": 3}] * 3 + [{"sales": 1.25, "shop": "west"}]
    assert serve(run).post("/predict", rows)[1]["notes"] == [
        "keys that rows do not have count as null: `temperature` is missing in row 4",
        "4 rows of `shop` have values that the training data does not have, such as 'west'",
    ]


def test_times_of_a_time_series(serve, tmp_path):
    spec = SALES.replace("COLUMNS", "{sales: numeric}").replace("group: shop}", "}\n    split: {test: 0.2, time: day}")
    (tmp_path / "train.yaml").write_text(spec)
    rows = [{"day": f"2026-01-{day:02}", "sales": day % 7} for day in range(1, 31)]
    lines = [f"{row['day']},{row['sales']}" for row in rows]
    (tmp_path / "sales.csv").write_text("\n".join(["day,sales", *lines]) + "\n")
    client = serve(netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference").run_dir)
    assert client.get("/predict")[1]["time"] == "day"
    answer = client.post("/predict", rows[:4])[1]
    assert answer["answers"][0]["day"] == "2026-01-04"
    assert answer["notes"] == ["the 2 predictions after row 4 (2026-01-04) are for 2026-01-05 to 2026-01-06"]
    assert "before row 4 (2026-01-03 to 2026-01-09)" in client.post("/predict", [*rows[:3], rows[8]])[1]["notes"][0]
    status, error = client.error("/predict", rows[3::-1])
    assert (status, "row 2: 2026-01-03 after 2026-01-04" in error) == (422, True)
    table = ("day,sales\n" + "\n".join(lines[3::-1])).encode()
    assert client.error("/predict", table, **{"Content-Type": "text/csv"})[0] == 422


def test_a_row_without_a_value_that_must_not_be_missing_is_named(serve, tmp_path):
    (tmp_path / "cars.csv").write_text("km,price\n1,2\n3,4\n")
    layers = [{"type": "Dense", "units": 1, "from": "features"}, {"type": "Reshape", "target_shape": [], "name": "y"}]
    net = {
        "netspec": 1, "inputs": {"features": {"shape": [1]}, "label": {"shape": []}}, "layers": layers,
        "losses": [{"type": "MeanSquaredError", "from": ["y", "label"]}],
    }  # fmt: skip
    columns = {"km": {"type": "numeric", "missing": "drop"}, "price": {"type": "numeric"}}
    source = {"source": "csv", "path": str(tmp_path / "cars.csv"), "header": True, "columns": columns, "label": "price"}
    spec = {
        "netspec": 1, "net": net, "data": {"train": {**source, "batch_size": 2}}, "train": {"max_steps": 1},
        "solver": {"type": "SGD", "learning_rate": 0.01},
    }  # fmt: skip
    netspec.train(spec, run_dir=tmp_path / "run", device="reference")
    client = serve(tmp_path / "run")
    error = client.error("/predict", [{"km": 1}, {"km": None}])
    assert error == (422, "1 of 2 rows has no prediction: `km` is missing in row 2")
    status, message = client.error("/predict", {"km": None})
    assert (status, "`km` is missing in row 1" in message) == (422, True)
