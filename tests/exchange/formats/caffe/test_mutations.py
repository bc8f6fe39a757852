"""Random changes of texts and bytes: the result is read, or refused with an error for users."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from netspec.errors import InputError
from netspec.exchange.formats.caffe.blobs import array_blob, weights_of
from netspec.exchange.formats.caffe.proto.binary import decode, encode
from netspec.exchange.formats.caffe.proto.text import parse
from netspec.exchange.formats.caffe.reading import draft_net
from netspec.exchange.formats.caffe.upgrade import upgraded
from netspec.exchange.interface import ImportOptions
from tests.exchange.formats.caffe.prototxt import drafted, spec_of, with_input
from tests.exchange.formats.caffe.test_layers import CASES

TEXTS = [re.findall(r'\s+|\w+|"[^"]*"|.', with_input(text, *dims)) for dims, text, _ in CASES.values()]
WORDS = sorted({word for text in TEXTS for word in text} | {"-1", "0", "4294967295", "1e30", "nan", '"', "#", "["})


def outcome(call: Callable[[], object]) -> str:
    """Return the message of an error for users; no other error is expected."""
    try:
        call()
    except InputError as error:
        return error.summary
    return "read"


@st.composite
def changed(draw, tokens):
    """Tokens, some of which are removed, replaced or repeated."""
    tokens = [*tokens]
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(tokens) - 1))
        end = index + draw(st.integers(0, 3))
        tokens[index:end] = draw(st.lists(st.sampled_from(WORDS), max_size=2)) if draw(st.booleans()) else tokens[:9]
    return "".join(tokens)


@given(st.sampled_from(TEXTS).flatmap(changed))
@settings(max_examples=300)
def test_texts(text):
    assert outcome(lambda: spec_of(drafted(text)))


def _weights() -> bytes:
    dims, text, _ = CASES["inner product"]
    net = parse(with_input(text, *dims), "NetParameter")
    net["layer"][1]["blobs"] = [array_blob(np.ones((5, 216), np.float32)), array_blob(np.ones(5, np.float32))]
    content = encode(net)
    decode(content, "NetParameter")
    return content


WEIGHTS = _weights()


@given(st.lists(st.tuples(st.integers(0, 250), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=3))
@settings(max_examples=300)
def test_bytes(changes):
    content = WEIGHTS
    for index, removed, new in changes:
        content = content[:index] + new + content[index + removed :]

    def read() -> None:
        net = upgraded(decode(content, "NetParameter", "w.caffemodel"))
        draft_net(net, ImportOptions(), weights=weights_of(net, "w.caffemodel"))

    assert outcome(read)
