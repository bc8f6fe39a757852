"""The page of a service in a browser: images, rows, texts, prompts and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import netspec
from tests.chromium import PROGRAM, Page, chromium
from tests.tools.serving.conftest import HOMES, Client, Serve, sales_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed: `make browser` installs it"),
]
ANSWER = "document.querySelectorAll('#answer tr').length > 0"
ROWS = "[...document.querySelectorAll('#answer tr')].map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page in a browser."""
    with chromium() as page:
        yield page


def answer(page: Page) -> dict[str, str]:
    """Wait for the answer of the service, and return it."""
    page.wait_for(ANSWER)
    return dict(page.evaluate(ROWS))


def open_page(page: Page, client: Client) -> None:
    """Open the page of a service, and wait until it knows the model."""
    page.open(f"http://127.0.0.1:{client.port}/")
    page.wait_for("document.readyState === 'complete' && document.title !== 'netspec'")


def fill_in(page: Page, selector: str, text: str) -> None:
    """Set a field of the form."""
    page.evaluate(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")


def submit(page: Page) -> None:
    """Press the button."""
    page.evaluate("document.querySelector('#form button').click()")


def test_image(page: Page, serve: Serve, image_run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (6, 6), (235, 235, 235)).save(tmp_path / "light.png")
    open_page(page, serve(image_run))
    assert page.evaluate("document.title") == "brightness"
    page.choose_file("#file", tmp_path / "light.png")
    printed = answer(page)
    assert [*printed] == ["light", "dark"]  # the most probable class first
    assert all(text.endswith(" %") for text in printed.values())
    page.wait_for("document.querySelector('#image').naturalWidth === 6")  # the page shows the image
    assert not page.errors


def test_dropped_image(page: Page, serve: Serve, image_run: Path) -> None:
    open_page(page, serve(image_run))
    page.evaluate(
        """(async () => {
            const canvas = new OffscreenCanvas(6, 6);
            canvas.getContext("2d").fillRect(0, 0, 6, 6);
            const dropped = new DataTransfer();
            dropped.items.add(new File([await canvas.convertToBlob()], "dark.png"));
            get("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: dropped, cancelable: true}));
        })()"""
    )
    assert next(iter(answer(page))) == "dark"
    assert not page.errors


def test_row(page: Page, serve: Serve, table_run: Path) -> None:
    open_page(page, serve(table_run))
    assert page.evaluate("[...document.querySelectorAll('#fields label')].map(label => label.textContent)") == [
        "size",
        "color",
    ]
    assert page.evaluate("[...document.querySelectorAll('#values-color option')].map(option => option.value)") == [
        "green",
        "red",
    ]
    fill_in(page, "#field-size", "9.1")
    fill_in(page, "#field-color", "red")
    submit(page)
    assert [*answer(page)][:2] == ["row", "apple"]
    assert page.evaluate("document.querySelector('#notes').textContent") == ""
    fill_in(page, "#field-color", "blue")
    submit(page)
    page.wait_for("document.querySelector('#notes').textContent !== ''")
    assert "'blue'" in page.evaluate("document.querySelector('#notes').textContent")
    assert not page.errors


def test_numbers_in_both_notations(page: Page, serve: Serve, tmp_path: Path) -> None:
    columns = "columns: {size: {type: numeric, unit: m²}, rooms: {type: numeric, missing: 3}, price: numeric}"
    spec = re.sub("columns: .*", f'{columns}\n    delimiter: ";"\n    decimal: ","', HOMES)
    (tmp_path / "train.yaml").write_text(spec)
    (tmp_path / "homes.csv").write_text("size;rooms;price\n1,5 m²;2;3\n2 m²;;4,5\n")
    netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference")
    open_page(page, serve(tmp_path / "run"))
    assert page.evaluate("[...document.querySelectorAll('#fields input')].map(input => input.placeholder)") == [
        "a number such as 47,5 in m²",
        "a number such as 47,5, may be empty",
    ]
    answers = []
    for size in ("47.5", "47,5 m²"):
        fill_in(page, "#field-size", size)
        submit(page)
        answers.append(answer(page))
    assert list(answers[0]) == ["row", "prediction: price"]
    assert answers[0] == answers[1]
    assert not page.errors


def test_boxes_and_masks_are_readable(page: Page, serve: Serve, image_run: Path) -> None:
    open_page(page, serve(image_run))
    box = {"class": "cat", "score": 0.875, "x1": 1, "y1": 2, "x2": 30.5, "y2": 40}
    assert page.evaluate(f"answerRows('boxes', [{json.dumps(box)}])") == [["cat", "87.5 % at 1, 2, 30.5, 40"]]
    assert page.evaluate("answerRows('boxes', [])") == [["boxes", "none"]]
    answers = {"a.class": "cat", "a.probability": 0.5, "b.class": "yes"}
    described = [page.evaluate(f"answerRows({json.dumps(name)}, 'x', {json.dumps(answers)})") for name in answers]
    assert described == [[["a.cat", "50.0 %"]], [], [["b.class", "x"]]]
    assert page.evaluate("answerRows('mask', [[0, 1], [1, 1]])") == [["light", "75.0 %"], ["dark", "25.0 %"]]


def test_error_of_a_row(page: Page, serve: Serve, table_run: Path) -> None:
    open_page(page, serve(table_run))
    fill_in(page, "#field-size", "big")
    submit(page)
    page.wait_for("document.querySelector('#error').textContent !== ''")
    error = page.evaluate("document.querySelector('#error').textContent")
    assert "`size`" in error
    assert "'big'" in error
    assert page.evaluate(ROWS) == []
    page.errors.clear()  # the browser reports the status 422


def test_text(page: Page, serve: Serve, text_run: Path) -> None:
    open_page(page, serve(text_run))
    fill_in(page, "#text", "nice great")
    submit(page)
    assert "good" in [*answer(page)][:2]
    assert not page.errors


def test_prompt(page: Page, serve: Serve, language_run: Path) -> None:
    open_page(page, serve(language_run, max_batch=1))
    assert page.evaluate("document.querySelector('#field-tokens').placeholder") == "200"
    assert page.evaluate("document.querySelector('#form button').textContent") == "Generate"
    fill_in(page, "#text", "ab")
    fill_in(page, "#field-tokens", "20")
    fill_in(page, "#field-temperature", "0.5")
    submit(page)
    assert answer(page) == {
        "text": netspec.generate(language_run, "ab", tokens=20, temperature=0.5, device="reference")
    }
    assert not page.errors


def test_rows_of_a_time_series(page: Page, serve: Serve, tmp_path: Path) -> None:
    open_page(page, serve(sales_run(tmp_path, "{sales: numeric}")))
    assert page.evaluate("document.querySelector('#rows').textContent").startswith("Give 4 rows or more, as a file ")
    assert page.evaluate("document.querySelectorAll('#fields input').length") == 0
    rows = ["shop,sales", *(f"north,{day}.5" for day in range(5))]
    fill_in(page, "#text", "\n".join(rows))
    submit(page)
    printed = answer(page)
    assert (list(printed), printed["row"]) == (
        ["row", "prediction_0: sales, 1 row ahead", "prediction_1: sales, 2 rows ahead"], "5"
    )  # fmt: skip
    (tmp_path / "new.csv").write_text("\n".join(rows[:-1]))
    page.evaluate("document.querySelector('#answer').replaceChildren()")
    page.choose_file("#file", tmp_path / "new.csv")
    assert answer(page)["row"] == "4"
    assert not page.errors
