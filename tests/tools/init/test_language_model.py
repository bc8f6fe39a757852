"""`netspec.init` of running text: a language model that trains and continues a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

import netspec
from netspec.errors import InputError
from netspec.tools.init import InitResult, init
from netspec.tools.init import language_model as texts
from netspec.tools.specs import load_train

LINE = "To be, or not to be, that is the question: {}.\n"


@pytest.fixture
def play(tmp_path: Path) -> Path:
    path = tmp_path / "play.txt"
    path.write_text("".join(map(LINE.format, range(60))) + "Ω", encoding="utf-8")
    return path


def trained(result: InitResult, folder: Path) -> netspec.Run:
    assert netspec.check(result.train).warnings == ()
    return netspec.train(str(result.train), run_dir=folder / "run", device="reference", **{"train.max_epochs": 1})


def test_a_text_becomes_a_language_model(play: Path, tmp_path: Path) -> None:
    result = init(play)
    assert result.task == "language model"
    assert any("bytes are few" in text for text in result.warnings)
    run = trained(result, tmp_path)  # the last character is only in the test part, so it is unknown
    assert run.validation is not None
    assert run.test is not None
    assert netspec.generate(run.run_dir, "To be", tokens=9)


def test_letters_of_several_bytes_are_one_token_each(play: Path, tmp_path: Path) -> None:
    greek = str.maketrans("abdehinoqrstuB", "αβδεηινοκρστυΒ")
    (tmp_path / "greek.txt").write_text(play.read_text(encoding="utf-8").translate(greek), encoding="utf-8")
    latin, other = (load_train(init(file, output=tmp_path / file.stem).train).train
                    for file in (play, tmp_path / "greek.txt"))  # fmt: skip
    assert other.max_epochs == latin.max_epochs
    assert other.early_stopping == latin.early_stopping


def test_a_folder_of_texts_without_classes(play: Path, tmp_path: Path) -> None:
    (tmp_path / "plays").mkdir()
    for name in ("a", "b"):
        (tmp_path / "plays" / f"{name}.txt").write_bytes(play.read_bytes())
    result = init(tmp_path / "plays")
    assert result.task == "language model"
    assert any(text.startswith("1 of 2 texts is a duplicate") for text in result.warnings)
    assert trained(result, tmp_path).test is not None


def test_folders_of_texts_are_running_text_on_request(reviews: Path) -> None:
    with pytest.raises(InputError, match=r"the files in .* are too short") as caught:
        init(reviews, task="language_model")
    assert str(caught.value.problems[0].hint).startswith(f"join them: `find {reviews} -name '*.txt' -exec cat")


def test_large_texts_are_read_by_pieces_of_words(
    play: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(texts, "LARGE", 1000)
    monkeypatch.setattr(texts, "PIECES", 300)
    monkeypatch.setattr(texts, "LENGTHS", (8,))
    result = init(play)
    assert {"MultiHeadAttention", "PositionEmbedding"} < {
        getattr(layer, "type", "") for layer in load_train(result.train).net.layers
    }
    assert trained(result, tmp_path).test is not None


def test_a_table_named_txt_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("size\tlabel\n" + "1\ta\n2\tb\n" * 50)
    assert init(tmp_path / "t.txt").task == "table classification"
    (tmp_path / "t.txt").write_text("size\tkind\n" + "1\ta\n2\tb\n" * 500)
    assert init(tmp_path / "t.txt", target="kind", force=True).task == "table classification"
    (warning,) = (text for text in init(tmp_path / "t.txt", force=True).warnings if "table" in text)
    assert warning == "the lines look like a table of 2 columns: to predict one, name it with --target"


def test_text_that_is_not_utf8_is_located(play: Path) -> None:
    play.write_bytes(b"a\nfa\xe7ade\n" * 500)
    with pytest.raises(InputError, match=r"not text in UTF-8") as caught:
        init(play)
    location = caught.value.problems[0].location
    assert location is not None
    assert (location.line, location.column) == (2, 3)
