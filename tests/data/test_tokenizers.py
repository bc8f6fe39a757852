"""Tokenizers: tokens and their ids, and text without tokens."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

import netspec.data  # noqa: F401  # the tokenizers are found through it
from netspec.data.text.tokenizers.base import TokenizerSpec, learned_tokenizer, opened_tokenizer, saved_tokenizer
from netspec.data.text.tokens import Tokenizer, UnknownText
from netspec.errors import InputError, install_command
from netspec.schema.specs.data import TOKENIZERS
from tests.data.conftest import located, problems_of

UNKNOWN_MERGE = b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}}'
"""A merge that the vocabulary lacks and that is longer than all its entries: the library panics."""
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


def spec_of(_type: str, **fields: Any) -> TokenizerSpec:
    spec = TOKENIZERS.parse(located({"type": _type, **fields}, "train.yaml"))
    assert isinstance(spec, TokenizerSpec)
    return spec


def trained(_type: str, *texts: str, **fields: Any) -> Tokenizer:
    """Return the tokenizer learned from texts, with its vocabulary converted to JSON and back, as in a weights file."""
    spec = spec_of(_type, **fields)
    learned = json.loads(json.dumps(learned_tokenizer(spec, texts)[1]))
    assert saved_tokenizer(learned).size == opened_tokenizer(spec, learned).size
    return opened_tokenizer(spec, learned)


def test_characters_are_numbered_by_code_point():
    tokenizer = trained("characters", "héllo\n", "wörld")
    assert tokenizer.size == len(set("héllo\nwörld"))
    assert tokenizer.encode("\nhé").tolist() == [
        0,
        sorted(set("héllo\nwörld")).index("h"),
        sorted("\ndhlorwéö").index("é"),
    ]
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.encode("ö").dtype == np.int32


@given(text=TEXT.filter(bool))
def test_characters_round_trip(text):
    tokenizer = trained("characters", text, padding=True)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text).min() == 1


def test_padding_and_unknown_have_the_first_ids():
    tokenizer = trained("characters", "abc", padding=True, unknown=True)
    assert (tokenizer.padding, tokenizer.unknown, tokenizer.size) == (0, 1, 5)
    assert tokenizer.encode("a?c").tolist() == [2, 1, 4]
    assert tokenizer.decode([2, 1, 0, 0]) == "a�"
    tokenizer = trained("words", "b a b", unknown=True)
    assert (tokenizer.padding, tokenizer.unknown) == (None, 0)
    assert tokenizer.encode("a b c").tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("kind", "fields", "first"),
    [
        ("characters", {"padding": True}, 1),
        ("characters", {"padding": True, "unknown": True}, 2),
        ("words", {}, 0),
        ("byte_pairs", {"size": 300, "padding": True}, 1),
        ("byte_pairs", {"size": 300}, 0),
    ],
)
def test_start_and_end_have_the_next_ids_and_no_text(kind, fields, first):
    tokenizer = trained(kind, "abc abc", start_end=True, **fields)
    assert (tokenizer.start, tokenizer.end) == (first, first + 1)
    assert tokenizer.encode("abc").min() > first + 1
    assert tokenizer.decode([first, *tokenizer.encode("abc"), first + 1]) == "abc"
    assert tokenizer.size == trained(kind, "abc abc", **fields).size + 2


def test_byte_pairs_have_room_for_all_bytes_and_reserved_tokens():
    with pytest.raises(PydanticCustomError, match="`size` leaves no room for all bytes"):
        spec_of("byte_pairs", size=258, padding=True, start_end=True)
    tokenizer = trained("byte_pairs", "abc", size=259, padding=True, start_end=True)
    assert tokenizer.size == 259
    assert 2 not in tokenizer.encode("\0end").tolist()  # the text of the end token is not the end token


def test_weights_saved_before_a_field_existed_can_be_read():
    spec = spec_of("characters", padding=True)
    learned = learned_tokenizer(spec, ["abc"])[1]
    del learned["start_end"]
    assert opened_tokenizer(spec, learned).size == 4
    with pytest.raises(InputError, match="a different tokenizer") as error:
        opened_tokenizer(spec_of("characters", padding=True, start_end=True), learned)
    assert "got: a different `start_end`" in error.value.render()


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_unseen_tokens_are_reported_with_their_position(kind):
    tokenizer = trained(kind, "a b\n")
    with pytest.raises(UnknownText) as error:
        tokenizer.encode("a b c a")
    assert (error.value.token, error.value.offset) == ("c", 4)
    assert error.value.problem().message == f"the {kind[:-1]} 'c' is not in the vocabulary"
    with pytest.raises(UnknownText) as error:
        tokenizer.encode("a\na  c")
    assert (error.value.line, error.value.column) == (1, 3)


def test_the_most_frequent_words_come_first_and_the_rarest_are_unknown():
    tokenizer = trained("words", "to be, or not to be: to", "not", size=5, unknown=True)
    assert tokenizer.decode(range(1, 5)) == "to be not ,"
    assert tokenizer.encode("to or , :").tolist() == [1, 0, 4, 0]
    tokenizer = trained("words", "to be, or not to be: to", "not", min_count=2, unknown=True)
    assert tokenizer.decode(range(tokenizer.size)) == "� to be not"


@pytest.mark.parametrize(
    ("punctuation", "words"),
    [("apart", "Don't stop , it's 3 . 5"), ("drop", "Don't stop it's 3 5"), ("keep", "Don't stop, it's 3.5")],
)
def test_punctuation_is_split_off_dropped_or_kept(punctuation, words):
    tokenizer = trained("words", "Don't stop,  it's\n3.5", punctuation=punctuation)
    assert tokenizer.decode(tokenizer.encode("Don't stop, it's 3.5")) == words


def test_text_is_normalized_before_tokenizing():
    tokenizer = trained("characters", "Ée", normalize="NFC", lowercase=True)
    assert tokenizer.size == 2
    assert tokenizer.encode("E\u0301").tolist() == tokenizer.encode("é").tolist()
    assert trained("characters", "é", normalize="NFD").size == 2


def test_a_vocabulary_that_is_too_large_is_reported_with_the_rarest_tokens():
    with pytest.raises(InputError) as error:
        trained("characters", "aab" * 9 + "xyz", size=3)
    assert error.value.render() == (
        "train.yaml:2:7: error: the vocabulary is too large: the training split holds 5 characters\n"
        "  at: tokenizer.size\n"
        "  expected: at most 3, or `unknown: true`, which gives one index to the rarest ones\n"
        "  got: among the rarest: 'x', 'y', 'z', 'b', 'a'"
    )
    with pytest.raises(InputError, match="holds no words to learn"):
        trained("words", " \n ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "characters", "size": 2, "padding": True, "unknown": True}, "no room for a vocabulary"),
        ({"type": "words", "min_count": 3}, "`min_count` drops rare words, and without `unknown` they have no token"),
        ({"type": "byte_pairs", "size": 256}, "greater than 256"),
    ],
)
def test_contradicting_fields_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        TOKENIZERS[fields["type"]].model_validate(fields)


def test_another_split_must_have_the_same_tokenizer():
    spec = spec_of("words", lowercase=True)
    learned = learned_tokenizer(spec, ["a b"])[1]
    with pytest.raises(InputError) as error:
        opened_tokenizer(spec_of("words", unknown=True), learned)
    assert error.value.render() == (
        "train.yaml:1:1: error: the training split has a different tokenizer\n"
        "  at: tokenizer\n"
        "  expected: the same tokenizer as in training: an index must mean the same text in every split\n"
        "  got: a different `lowercase`, `unknown`"
    )


# Byte pairs: the library is an extra.

SENTENCES = ["the cat sat on the mat\n", "the dog sat on the log\n"] * 5


def test_byte_pairs_are_deterministic_and_encode_any_text():
    tokenizer = trained("byte_pairs", *SENTENCES, size=300)
    assert 256 < tokenizer.size <= 300
    assert len(tokenizer.encode("the cat")) < len("the cat")
    assert tokenizer.decode(tokenizer.encode_long("the cat\n" * 9999)) == "the cat\n" * 9999
    assert (
        tokenizer.encode("the dog sat").tolist()
        == trained("byte_pairs", *SENTENCES, size=300).encode("the dog sat").tolist()
    )


@given(text=TEXT)
def test_byte_pairs_round_trip(text):
    tokenizer = trained("byte_pairs", *SENTENCES, size=300, padding=True)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert 0 not in tokenizer.encode(text)


def test_a_tokenizer_json_equals_the_library_tokenizer(tmp_path):
    library = pytest.importorskip("tokenizers", reason="Hugging Face's library is not installed")
    library_tokenizer = library.Tokenizer(library.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    library_tokenizer.pre_tokenizer = library.pre_tokenizers.Whitespace()
    library_tokenizer.enable_padding(length=9)
    library_tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer = trained("tokenizer_json", path=str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("b a c").tolist() == [2, 1, 0]
    assert tokenizer.size == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "cannot read"),
        (UNKNOWN_MERGE, "cannot read"),
        (b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}', "drops unknown characters"),
    ],
)
def test_a_file_without_a_tokenizer_is_rejected(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        trained("tokenizer_json", path=str(path))
    assert "./tokenizer.json" in problems_of(error, tmp_path)


def test_a_missing_tokenizers_library_gets_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError) as error:
        trained("byte_pairs", "a", size=300)
    assert error.value.problems[0].hint == install_command("text")
