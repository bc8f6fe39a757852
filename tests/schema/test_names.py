"""Default names, and hints for names in other frameworks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.errors import SpecError
from netspec.schema.load import load_train
from netspec.schema.messages.foreign import Suggestion, _entries, suggest
from netspec.schema.messages.foreign_names import TABLES
from netspec.schema.specs.kinds import REGISTRIES
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.names import NamedEntry, default_names, snake_case
from netspec.schema.specs.net import InputSpec, NetSpec
from tests.schema.catalogue import Add, Conv2D, Dense, Flatten
from tests.schema.specs import TRAIN, write


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("Conv2D", "conv2d"),
        ("MaxPooling2D", "max_pooling2d"),
        ("BatchNormalization", "batch_normalization"),
        ("GlobalAveragePooling2D", "global_average_pooling2d"),
        ("LSTM", "lstm"),
        ("L1L2", "l1l2"),
        ("Add", "add"),
    ],
)
def test_snake_case_is_keras(name, snake):
    assert snake_case(name) == snake


@given(st.lists(st.tuples(st.sampled_from(["Conv2D", "Add"]), st.sampled_from([None, None, "add", "conv2d_1", "x"]))))
def test_default_names_are_unique_and_leave_given_ones(types_and_names):
    entries = [NamedEntry(type_, name) for type_, name in types_and_names]
    default_names(entries, {"add_1"})
    assert all(name is None or entry.name == name for entry, (_, name) in zip(entries, types_and_names, strict=True))
    new_names = [entry.name for entry, (_, name) in zip(entries, types_and_names, strict=True) if name is None]
    assert len(set(new_names)) == len(new_names)
    assert not set(new_names) & ({name for _, name in types_and_names} | {"add_1"})


def test_a_net_made_in_python():
    net = NetSpec(
        netspec=1,
        inputs={"x": InputSpec(shape=(3,)), "y": InputSpec(shape=())},
        layers=[
            Conv2D(filters=1, kernel_size=1),
            Conv2D.model_validate({"filters": 1, "kernel_size": 1, "from": "x"}),
            Add.model_validate({"from": ["conv2d", "conv2d_1"]}),
        ],
    )
    links = resolve_names(net)
    assert [link.sources for link in links.layers] == [("x",), ("x",), ("conv2d", "conv2d_1")]
    assert links.outputs == ("add",)
    with pytest.raises(SpecError, match="there is no layer or input named `flat`"):
        resolve_names(
            NetSpec(
                netspec=1, inputs=net.inputs, layers=[Flatten(), Dense.model_validate({"units": 1, "from": "flat"})]
            )
        )


@pytest.mark.parametrize("kind", TABLES)
def test_hints_name_only_registered_types(kind):
    assert kind in REGISTRIES
    for name, meanings in _entries(kind).items():
        general = suggest(kind, name, ())
        assert general is None or (general.name is None and any(general.hint == advice[1:] for _, advice in meanings))
        advice = next((advice for _, advice in meanings if not advice.startswith("!")), None)
        if advice:
            first = advice.split(" | ")[0].split(", ")[0]
            suggestion = suggest(kind, name, (first,))
            assert suggestion is not None
            assert first == name or general or suggestion.name == first


@pytest.mark.parametrize(
    ("name", "hint", "suggested"),
    [
        ("InnerProduct", "InnerProduct is Caffe's name: use Dense", "Dense"),
        ("INNER_PRODUCT", "INNER_PRODUCT is Caffe's name: use Dense", "Dense"),
        ("TanH", "TanH is Caffe's name: use Activation with `activation: tanh`", "Activation"),
        ("Linear", "Linear is PyTorch's name: use Dense", "Dense"),
        ("Pooling", "Pooling is Caffe's name: use MaxPooling2D or AveragePooling2D", "MaxPooling2D"),
        ("dense", "did you mean `Dense`?", "Dense"),
        ("conv2D", "did you mean `Conv2D`?", "Conv2D"),
        ("max_pooling_2d", "did you mean `MaxPooling2D`?", "MaxPooling2D"),
        ("Actvation", "did you mean `Activation`?", "Activation"),
        ("Input", "the net's inputs are declared under `inputs`", None),
    ],
)
def test_hint_for_an_unknown_type(name, hint, suggested):
    type_names = ("Dense", "Activation", "Conv2D", "MaxPooling2D", "AveragePooling2D")
    assert suggest("layer", name, type_names) == Suggestion(hint, suggested)


def test_no_hint_for_a_name_without_similar_names():
    assert suggest("layer", "Zorp", ("Dense", "Activation")) is None


def test_value_of_net_that_is_not_a_net(folder):
    write(folder, train=TRAIN.replace("net: net.yaml", "net: 5"))
    with pytest.raises(SpecError) as caught:
        load_train("train.yaml")
    assert caught.value.render() == (
        "train.yaml:2:6: error: `net` is not a path or a net\n"
        "  2 | net: 5\n"
        "    |      ^\n"
        "  expected: the path of a net file, or the content of one\n"
        "  got: 5 (a number)"
    )
