"""Windows of running text: their tokens, order and files; and files that are not text."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.data.base import FieldType
from netspec.data.input_binding import ValueRange
from netspec.data.loader import Loader, open_loader
from netspec.data.pipeline import Learned
from netspec.data.text import files, token_store
from netspec.data.text.windows import TextWindows
from netspec.errors import InputError
from tests.data.conftest import problems_of, split_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("abcabcabcabc\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("cabbages\n", encoding="utf-8")
    return tmp_path


def windows(folder: Path, learned: Any = None, **fields: Any) -> TextWindows:
    settings = {"path": "a.txt", "tokenizer": "characters", "length": 4, **fields}
    dataset = split_of(str(folder / "train.yaml"), source="text", **settings).open(learned=learned)
    assert isinstance(dataset, TextWindows)
    return dataset


def shown(data: TextWindows, alphabet: str) -> list[tuple[str, str]]:
    windows_read = data.read(np.arange(len(data)))
    return [
        ("".join(alphabet[at] for at in text), "".join(alphabet[at] for at in target))
        for text, target in zip(windows_read["text"], windows_read["target"], strict=True)
    ]


def test_windows_are_consecutive_and_targets_shifted_by_one(folder):
    data = windows(folder)
    assert data.fields == {"text": FieldType((4,), "int32"), "target": FieldType((4,), "int32")}
    assert shown(data, "\nabc") == [("abca", "bcab"), ("bcab", "cabc"), ("cabc", "abc\n")]
    assert data.learned["tokenizer"]["vocabulary"] == "\nabc"
    assert data.describe(2) == "a.txt, tokens 8 to 12"


def test_windows_overlap_with_a_stride_and_never_span_files(folder):
    data = windows(folder, path=["a.txt", "b.txt"], stride=3, tokenizer={"type": "characters", "padding": True})
    characters = "\0\nabcegs"
    assert shown(data, characters) == [
        ("abca", "bcab"), ("abca", "bcab"), ("abca", "bc\u0061b"), ("cabb", "abba"), ("bage", "ages"),
    ]  # fmt: skip
    assert [data.describe(row) for row in (2, 3)] == ["a.txt, tokens 6 to 10", "b.txt, tokens 0 to 4"]
    assert shown(
        windows(folder, path=".", stride=3, tokenizer={"type": "characters", "padding": True}), characters
    ) == shown(data, characters)


@given(text=st.text("aé€😀\n ", min_size=20, max_size=80), cut=st.floats(0.01, 0.99), block=st.integers(4, 40))
def test_blocks_of_all_parts_cover_the_text_once(tmp_path_factory, text, cut, block):
    path = tmp_path_factory.mktemp("parts") / "some.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        parts = [files.part_of(path, 0, cut), files.part_of(path, cut, 1)]
        assert "".join(text_block.text for part in parts for text_block in files.blocks(part)) == text


@pytest.mark.parametrize("tokenizer", ["characters", {"type": "byte_pairs", "size": 300}])
def test_many_tokens_are_cached_in_a_file_for_the_next_run(folder, monkeypatch, tokenizer):
    (folder / "long.txt").write_text("to be or not to be\n" * 500, encoding="utf-8")
    fields = {"path": ["long.txt", "a.txt"], "tokenizer": tokenizer}
    first_open = windows(folder, **fields)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(token_store, "IN_MEMORY", 100)
    monkeypatch.setattr(files, "BLOCK", 1000)
    mapped = windows(folder, **fields)
    (file,) = (folder / "cache" / "netspec" / "tokens").iterdir()
    inode = file.stat().st_ino
    reopened = windows(folder, **fields)
    assert file.stat().st_ino == inode
    order = np.random.default_rng(0).permutation(len(first_open))
    for other in (mapped, reopened):
        assert len(other) == len(first_open)
        for name, values in first_open.read(order).items():
            assert np.array_equal(other.read(order)[name], values)
    file.write_bytes(file.read_bytes()[:-3])  # a cache file that another process has not finished
    assert np.array_equal(windows(folder, **fields).read(order)["text"], first_open.read(order)["text"])
    (folder / "long.txt").write_text("to be or to be\n" * 500, encoding="utf-8")
    assert len(windows(folder, **fields)) < len(first_open)


def test_an_unwritable_cache_folder_is_reported(folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "a.txt"))
    monkeypatch.setattr(token_store, "IN_MEMORY", 3)
    with pytest.raises(InputError, match="cannot create the cache folder") as error:
        windows(folder)
    assert error.value.problems[0].hint == "choose another folder with XDG_CACHE_HOME=FOLDER"


def test_other_splits_use_the_training_vocabulary(folder):
    learned = Learned.from_json(Learned({}, {}, windows(folder).learned).as_json()).source
    (folder / "c.txt").write_text("bbbbbbb\n", encoding="utf-8")
    assert shown(windows(folder, learned, path="c.txt"), "\nabc") == [("bbbb", "bbbb")]
    with pytest.raises(InputError) as error:
        windows(folder, learned, path="b.txt")
    assert problems_of(error, folder) == (
        "./b.txt:1:6: error: the character 'g' is not in the vocabulary\n"
        "  1 | cabbages\n"
        "    |      ^\n"
        "  expected: text made of tokens of the training split\n"
        "  hint: `tokenizer: {type: characters, unknown: true}` in all splits gives one index to all such text\n"
        "  requested at ./train.yaml:3:7"
    )
    with pytest.raises(InputError, match="the training split has a different tokenizer"):
        windows(folder, learned, tokenizer="words")


def test_every_window_appears_once_per_epoch_in_the_order_of_the_seed(folder):
    split = split_of(
        str(folder / "train.yaml"), source="text", path="a.txt", tokenizer="characters", length=2, shuffle=True
    )  # fmt: skip

    def order(seed: int) -> list[int]:
        with open_loader(split, seed=seed, prefetch=0) as loader:
            assert isinstance(loader, Loader)
            batches = iter(loader)
            return [int(batch) for _ in range(loader.steps_per_epoch) for batch in next(batches).indices]

    assert order(1) == order(1)
    assert sorted(order(1)) == sorted(order(2)) == list(range(6))
    assert order(1) != order(2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "./a.txt is empty\n"),
        (
            b"abc\nab\xe9c\n",
            "./a.txt:2:3: error: ./a.txt is not text in UTF-8\n  2 | ab\ufffdc\n    |   ^\n  expected: text in UTF-8\n",
        ),
        (b"abc\nabc\n\0", "./a.txt:3:1: error: ./a.txt has a NUL byte\n"),
        (b"abc", "the text is shorter than a window\n"),
    ],
    ids=["empty", "latin1", "nul", "short"],
)
def test_files_that_are_not_text_are_refused(folder, content, message):
    (folder / "a.txt").write_bytes(content)
    with pytest.raises(InputError) as error:
        windows(folder)
    assert message in problems_of(error, folder) + "\n"


def test_problems_far_into_a_file_are_reported_with_their_line(folder, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 50)
    (folder / "a.txt").write_bytes("\ufeff".encode() + "é line\n".encode() * 100 + b"\xff\n")
    with pytest.raises(InputError) as error:
        windows(folder)
    assert problems_of(error, folder).startswith("./a.txt:101:1: error: ./a.txt is not text in UTF-8\n")
    (folder / "a.txt").write_text("\ufeff" + "é line\n" * 100 + "é lane\n", encoding="utf-8")
    learned = windows(folder, part=[0, 0.5]).learned
    with pytest.raises(InputError) as error:
        windows(folder, learned, part=[0.5, 1])
    assert problems_of(error, folder).startswith("./a.txt:101:4: error: the character 'a' is not in the vocabulary\n")


def test_missing_files_are_reported(folder):
    with pytest.raises(InputError, match=r"file .*c\.txt does not exist"):
        windows(folder, path=["a.txt", "c.txt"])
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="holds no text"):
        windows(folder, path="empty")


def test_a_file_that_changes_while_it_is_read(folder, monkeypatch):
    def grown(*arguments: Any) -> str:
        with (folder / "a.txt").open("a") as file:
            file.write("more")
        return digest(*arguments)

    digest = files.digest_of
    monkeypatch.setattr("netspec.data.text.windows.digest_of", grown)
    with pytest.raises(InputError, match="changed while it was read"):
        windows(folder)


# A real text in full. Its checksum is that of the file on many servers.

TINY_SHAKESPEARE = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def test_tinyshakespeare_is_read_window_by_window():
    datasets_folder = os.environ.get("NETSPEC_DATASETS")
    if not datasets_folder or not Path(datasets_folder, "tinyshakespeare.txt").is_file():
        pytest.skip("NETSPEC_DATASETS names no folder with tinyshakespeare.txt")
    folder = Path(datasets_folder)
    data = windows(folder, path="tinyshakespeare.txt", length=100)
    raw = (folder / "tinyshakespeare.txt").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == TINY_SHAKESPEARE
    alphabet = data.learned["tokenizer"]["vocabulary"]
    assert (len(raw), len(alphabet), len(data)) == (1_115_394, 65, 11_153)
    windows_read = data.read(np.arange(len(data)))
    for name, first in (("text", 0), ("target", 1)):
        back = np.array([ord(character) for character in alphabet], np.uint8)[windows_read[name]].tobytes()
        assert back == raw[first : first + len(back)]
    train, test = (windows(folder, {"tokenizer": data.learned["tokenizer"]}, path="tinyshakespeare.txt", part=part)
                   for part in ([0, 0.9], [0.9, 1]))  # fmt: skip
    assert (len(train), len(test)) == (250_963, 27_884)


def test_tokens_that_the_net_does_not_accept_are_reported_once_with_the_size_of_the_vocabulary(folder):
    fields = {"source": "text", "path": "a.txt", "length": 4, "batch_size": 2}
    split = split_of(str(folder / "train.yaml"), **fields, tokenizer="characters")
    with pytest.raises(InputError) as error:
        Loader(split.open(), split, seed=1, ranges={"text": ValueRange(0, 2, "`input_dim` is 3")})
    (problem,) = error.value.problems
    assert problem.message == "`text` is out of range in 3 of 3 samples"
    assert (problem.expected, problem.got) == ("0 to 2: `input_dim` is 3", "3 (4 values)")
    assert problem.hint == "the tokenizer has 4 tokens"
    learned = windows(folder, path=["a.txt", "b.txt"]).learned  # seven characters, of which this text has four
    Loader(split.open(learned=learned), split, seed=1, ranges={"text": ValueRange(0, 3, "`input_dim` is 4")}).close()
