"""Caffe's messages as text and as bytes: reading, writing, and errors for damaged ones."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.caffe.proto.binary import MAX_FIELDS, decode, encode, read_binary
from netspec.exchange.formats.caffe.proto.fields import enums, kinds
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import MAX_BYTES, parse, read_text, to_text

NET = """
name: "lenet"  # a comment
layer {
  name: "conv1" type: 'Convolution'
  bottom: "data", top: "conv1";
  param < lr_mult: 1 > param: { lr_mult: 2f decay_mult: -0 }
  convolution_param { num_output: 0x14 kernel_size: [5, 3] stride: 1 weight_filler { type: "xa" "vier" } engine: 2 }
}
layer { name: "data\\n\\303\\244" type: "Input" input_param { shape: { dim: [64, 1, 28, 28] } } }
state { phase: TRAIN level: -3 stage: "a" }
debug_info: t
"""


def failure(call, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return caught.value.render()


def test_tables_name_only_existing_types():
    assert len(kinds()) == 61
    for kind in kinds().values():
        assert len(kind.by_number) == len(kind.fields), kind.name
        for field in kind.fields.values():
            assert not field.is_message or field.type in kinds(), field
            assert field.type not in enums() or field.repeated or field.default in enums()[field.type], field


def test_text_is_read():
    net = parse(NET, "NetParameter", "lenet.prototxt")
    conv, data = net["layer"]
    assert (net["name"], net["debug_info"], conv["name"], conv["type"]) == ("lenet", True, "conv1", "Convolution")
    assert [param["lr_mult"] for param in conv["param"]] == [1, 2]
    assert [param["decay_mult"] for param in conv["param"]] == [1, 0]
    conv_param = conv["convolution_param"]
    assert (conv_param["num_output"], conv_param["kernel_size"], conv_param["engine"]) == (20, [5, 3], "CUDNN")
    assert conv_param["weight_filler"]["type"] == "xavier"
    assert data["name"] == "data\nä"
    assert data["input_param"]["shape"][0].array("dim").tolist() == [64, 1, 28, 28]
    assert (net["state"]["phase"], net["state"]["level"]) == ("TRAIN", -3)


def test_unset_fields_have_their_defaults():
    net = parse(NET, "NetParameter")
    conv = net["layer"][0]
    assert "pooling_param" not in conv
    assert conv["pooling_param"]["round_mode"] == "CEIL"
    assert conv["loss_weight"] == []
    assert "group" not in conv["convolution_param"]
    assert conv["convolution_param"]["group"] == 1
    with pytest.raises(KeyError):
        conv["no_such_field"]


def test_positions_in_the_text_are_kept():
    net = parse(NET, "NetParameter", "lenet.prototxt")
    conv = net["layer"][0]
    assert str(conv.location()) == "lenet.prototxt:3:1"
    assert str(conv.location("type")) == "lenet.prototxt:4:17"
    assert str(conv["convolution_param"].location("kernel_size", 1)) == "lenet.prototxt:7:57"
    assert str(conv["convolution_param"].location("pad")) == "lenet.prototxt:7:3"
    assert conv.location("type").text == "  name: \"conv1\" type: 'Convolution'"


def test_text_and_bytes_hold_the_same():
    net = parse(NET, "NetParameter")
    assert repr(parse(to_text(net), "NetParameter")) == repr(net)
    reread = decode(encode(net), "NetParameter")
    assert sorted(to_text(reread).splitlines()) == sorted(to_text(net).splitlines())
    assert encode(reread) == encode(net)


def test_bytes_equal_protocol_buffers():
    # Encoded by hand after https://protobuf.dev/programming-guides/encoding/.
    blob = Message("BlobProto", num=-1, data=np.array([1, 2], np.float32), shape=Message("BlobShape", dim=[300]))
    assert encode(blob) == (
        b"\x08" + b"\xff" * 9 + b"\x01" + b"\x2a\x08" + struct.pack("<2f", 1, 2) + b"\x3a\x04\x0a\x02\xac\x02"
    )
    back = decode(encode(blob), "BlobProto")
    assert back["num"] == -1
    assert back["shape"]["dim"] == [300]
    assert back.array("data").tolist() == [1, 2]


def test_packed_floats_become_an_array_without_a_number_for_each():
    content = encode(Message("BlobProto", data=np.arange(1000, dtype=np.float32)))
    array = decode(content, "BlobProto").array("data")
    assert not array.flags.owndata  # a view of the bytes
    assert np.array_equal(array, np.arange(1000))


def test_floats_with_a_tag_each_and_in_pieces():
    numbers = np.arange(5000, dtype=np.float32)
    tagged = b"".join(b"\x2d" + struct.pack("<f", number) for number in numbers)
    assert np.array_equal(decode(tagged, "BlobProto").array("data"), numbers)
    doubles = b"".join(b"\x41" + struct.pack("<d", number) for number in numbers[:9])
    assert decode(doubles, "BlobProto").array("double_data").tolist() == list(range(9))
    pieces = b"\x2a\x08" + struct.pack("<2f", 1, 2) + b"\x08\x05" + b"\x2a\x04" + struct.pack("<f", 3)
    assert decode(pieces, "BlobProto").array("data").tolist() == [1, 2, 3]


def test_repeated_messages_are_merged_and_the_last_scalar_wins():
    layer = b"\xd2\x06\x02\x08\x05" + b"\xd2\x06\x04\x08\x06\x28\x02"  # two messages of the field convolution_param
    conv_param = decode(layer, "LayerParameter")["convolution_param"]
    assert (conv_param["num_output"], conv_param["group"]) == (6, 2)


def test_floats_are_written_short():
    content = encode(Message("SolverParameter", base_lr=0.1, momentum=0.9))
    back = decode(content, "SolverParameter")
    assert (back["base_lr"], back["momentum"]) == (0.1, 0.9)
    assert to_text(back) == "base_lr: 0.1\nmomentum: 0.9\n"


def test_unknown_fields_are_kept():
    text = 'layer { name: "a" permute_param { order: [0, 2] order: -1 } [ext.of]: "x" "y" type: "Permute" }'
    layer = parse(text, "NetParameter", "net.prototxt")["layer"][0]
    assert [field.name for field in layer.unknown] == ["permute_param", "[ext.of]"]
    assert str(layer.source.location(layer.unknown[0].offset)) == "net.prototxt:1:19"
    assert layer["type"] == "Permute"
    content = b"\x0a\x01a" + b"\xd2\x0c\x02\x08\x01"  # name, then field 202
    decoded = decode(content, "LayerParameter")
    assert [field.name for field in decoded.unknown] == ["202"]
    assert encode(decoded) == content
    newer = decode(b"\x50\x07", "LayerParameter")  # an unknown phase
    assert "phase" not in newer
    assert [field.name for field in newer.unknown] == ["phase = 7"]


def test_copies_are_their_own():
    net = parse(NET, "NetParameter")
    copy = net.copy()
    copy["layer"][0].edit("convolution_param")["group"] = 4
    del copy["layer"][1]["input_param"]
    assert net["layer"][0]["convolution_param"]["group"] == 1
    assert "input_param" in net["layer"][1]
    assert repr(parse(NET, "NetParameter")) == repr(net)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: lenet", "net.prototxt:1:7: error: `name` has a wrong value"),
        ("state { level: 1.5 }", "expected: an integer from -2,147,483,648 to 2,147,483,647"),
        ("state { level: 3000000000 }", "got: `3000000000`"),
        ("state { level: " + "9" * 9000 + " }", "`level` has a wrong value"),
        ("state { phase: TRIAN }", "hint: did you mean `TRAIN`?"),
        ("layer { convolution_param { group: -1 } }", "got: `-1`"),
        ("layer { convolution_param { bias_term: maybe } }", "expected: true or false"),
        ('name: "a" name: "b"', "`name` is given twice"),
        ('name: ["a", "b"]', "`name` takes one value, not a list"),
        ('name "a"', "expected: `:` after name"),
        ("layer: 5", "expected: `{`, since layer is a message"),
        ("layer { name: \"a\"", "a `}` is missing"),
        ("layer { name: \"a\" >", "expected: the name of a field"),
        ("}", "expected: the name of a field"),
        ('name: "abc', "the string is not closed on its line"),
        ("name: 'abc\n'", "the string is not closed on its line"),
        ("name: @", "unexpected character '@'"),
        (" " * 200_000 + "%", "unexpected character '%'"),
        ("# all comment\n" * 20_000 + "%", "unexpected character '%'"),
        ("a { " * 500, "messages are nested more than 64 deep"),
        ("a [" * 3 + "]>", "unexpected"),
        ("layer { a: }", "expected: a value"),
        ("[a.b", "expected: `]`"),
    ],
)  # fmt: skip
def test_wrong_text_is_reported_with_its_position(text, expected):
    began = time.process_time()
    message = failure(parse, text, "NetParameter", "net.prototxt")
    assert expected in message
    assert "net.prototxt:" in message
    assert time.process_time() - began < 2  # the time is at most proportional to the length


def test_all_wrong_values_are_reported_at_once():
    message = failure(parse, "name: 1 debug_info: 2 state { phase: 3 }", "NetParameter")
    assert message.endswith("3 errors")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\x0a\x05ab", "its NetParameter is truncated or invalid"),
        (b"\x0a", "its NetParameter is truncated or invalid"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "its NetParameter is truncated or invalid"),
        (b"\x28" + b"\xff" * 12, "its NetParameter is truncated or invalid"),
        (b"\x08\x01", "`name` of NetParameter is written as an integer"),
        (b"\x0f", "its NetParameter is truncated or invalid"),
        (b"\x02\x00", "its NetParameter is truncated or invalid"),
        (b"\x1d\x00\x00\x00\x00", "`input` of NetParameter is written as four bytes"),
        (b"\xa2\x06\x00" * (MAX_FIELDS + 1), "more than 200,000 fields"),
        (b"\xc2\x3e\x00" * 20_000, "more than 10,000 fields that Caffe does not have"),
        (b"\x0b\x0c", "`name` of NetParameter is written as a group"),
        (b"\x0b" * 500, "its NetParameter is truncated or invalid"),
        (b"\x22\x80\x89\x7a" + b"\x01" * 2_000_000, "`input_dim` of NetParameter has more than 1,000,000 values"),
        (b"\xa2\x06\x05\x3a\x03\x2a\x01\x00", "has 1 bytes, which are not floats"),
        (b'name: "lenet"\nlayer {}', "got: a text file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(50), "got: an HDF5 file"),
    ],
)  # fmt: skip
def test_damaged_bytes_are_reported(content, expected):
    began = time.process_time()
    assert expected in failure(decode, content, "NetParameter", "net.caffemodel")
    assert time.process_time() - began < 5


def test_every_truncation_is_reported_or_is_a_message():
    net = parse(NET, "NetParameter")
    net["layer"][0]["blobs"] = [Message("BlobProto", data=np.array([1, 2, 3], np.float32))]
    content = encode(net)
    messages = set()
    for end in range(1, len(content)):
        try:
            decode(content[:end], "NetParameter")
        except InputError as error:
            messages.add(error.summary.partition(":")[0])
    assert messages == {"the bytes is not a message of Caffe's, or is damaged"}


def test_files_of_other_kinds_are_refused(tmp_path):
    pointer = tmp_path / "big.caffemodel"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n")
    for read in (read_text, read_binary):
        assert "git lfs pull" in failure(read, pointer, "NetParameter", "a net of Caffe's")
    binary = tmp_path / "net.prototxt"
    binary.write_bytes(encode(Message("NetParameter", debug_info=False)))
    assert "got: a file that begins with the bytes" in failure(read_text, binary, "NetParameter", "a net of Caffe's")
    huge = tmp_path / "huge.prototxt"
    with huge.open("wb") as file:
        file.write(b"#")
        file.truncate(MAX_BYTES + 1)
    assert "too large" in failure(read_text, huge, "NetParameter", "a net of Caffe's")
    latin = tmp_path / "latin.prototxt"
    latin.write_bytes(b"\xef\xbb\xbf# r\xe9seau\nname: 'a'")
    assert read_text(latin, "NetParameter", "a net of Caffe's")["name"] == "a"
