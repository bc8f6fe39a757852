"""Loading complete specs: the result, and the exact text of errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netspec.errors import InputError, Location, SpecError
from netspec.schema.load import Overrides, load_net, load_spec, load_train
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.paths import absolute, resolve_path
from netspec.schema.specs.train import TrainSpec
from tests.schema.catalogue import SGD, Conv2D, Csv, Dense, ExponentialDecay
from tests.schema.specs import NET, TRAIN, write


def complaint(source: Any, overrides: Overrides = ()) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(source, overrides)
    return caught.value.render() + "\n"


def test_a_training_with_its_net(folder):
    write(folder)
    spec = load_train("train.yaml")
    assert isinstance(spec, TrainSpec)
    conv = spec.net.layers[0]
    assert isinstance(conv, Conv2D)
    assert (conv.filters, conv.kernel_size) == (20, 5)
    assert str(conv.where("filters")) == "net.yaml:8:42"
    assert isinstance(spec.solver, SGD)
    assert spec.solver.learning_rate == ExponentialDecay(initial=0.01)
    assert load_spec("net.yaml") == load_net("net.yaml") == spec.net


def test_names_are_filled_in(folder):
    write(folder)
    links = resolve_names(load_net("net.yaml"))
    assert [(link.name, link.sources) for link in links.layers] == [
        ("conv1", ("image",)),
        ("conv2d", ("conv1",)),
        ("flat", ("conv2d",)),
        ("fc.1", ("flat",)),
        ("logits", ("fc.1",)),
    ]
    assert links.outputs == ("logits",)
    assert [(link.name, link.sources) for link in links.losses] == [
        ("sparse_categorical_crossentropy", ("logits", "label"))
    ]


def test_variables_of_the_training_replace_variables_of_the_net(folder):
    write(folder, train=TRAIN + "vars: {width: '${half * 2}', half: 16}\n")
    spec = load_train("train.yaml")
    assert spec.net.vars == {"width": 32}
    assert isinstance(spec.net.layers[0], Conv2D)
    assert spec.net.layers[0].filters == 32
    assert str(spec.net.where("vars", "width")) == "train.yaml:8:15"


def test_a_net_inside_the_training_sees_its_variables(folder):
    inline = "\n".join("  " + line for line in NET.splitlines()[3:])
    write(folder, train=TRAIN.replace("net: net.yaml", f"net:\n  netspec: 1\n{inline}") + "vars: {width: 7}\n")
    net = load_train("train.yaml").net
    assert isinstance(net.layers[0], Conv2D)
    assert net.layers[0].filters == 7


def test_the_path_of_the_net_is_relative_to_the_training(folder):
    (folder / "runs").mkdir()
    write(folder)
    write(folder / "runs", train=TRAIN.replace("net: net.yaml", "net: ../${which}.yaml") + "vars: {which: net}\n")
    (folder / "runs" / "net.yaml").unlink()
    assert load_train("runs/train.yaml").net == load_net("net.yaml")


def test_paths_are_relative_to_the_file_that_contains_them(folder):
    (folder / "runs").mkdir()
    write(folder / "runs")
    spec = load_train("runs/train.yaml")
    assert spec.data.test is not None
    assert resolve_path(spec.data.test, "path") == folder / "runs" / "data" / "test.csv"
    spec = load_train("runs/train.yaml", ["data.test.path=x.csv"])
    assert resolve_path(spec, "data", "test", "path") == folder / "x.csv"
    absolute = load_train("runs/train.yaml", ["data.test.path=/x.csv"]).data.test
    assert isinstance(absolute, Csv)
    assert resolve_path(absolute, "path") == Path("/x.csv")


def test_python_data_and_objects():
    net: dict[str, Any] = {
        "netspec": 1,
        "inputs": {"x": {"shape": (4,)}, "y": {"shape": []}},
        "layers": [{"type": "Dense", "units": "${2 * 3}"}, Dense(units=3)],
    }
    spec = load_net(net)
    assert isinstance(spec, NetSpec)
    assert spec.layers == [Dense(units=6), Dense(units=3)]
    assert net["layers"][0] == {"type": "Dense", "units": "${2 * 3}"}
    data = {"train": {"source": "mnist", "split": "train", "batch_size": 2}}
    training = load_train({"netspec": 1, "net": spec, "data": data, "solver": SGD(), "train": {"max_steps": 1}})
    assert training.net is spec


def test_problems_of_python_data():
    source = {"netspec": 1, "inputs": {"x": {"shape": [4]}}, "layers": [{"type": "Dense", "unit": "${1/0}"}, "Flat"]}
    assert (
        complaint(source)
        == """\
<python>:10:1: error: `Dense` has no field `unit`
  10 | layers.0.unit='${1/0}'
     | ^
  hint: did you mean `units`?
  expected: one of units, activation, activity_regularizer, from, if, learning_rate_multiplier, name, repeat, \
share, trainable and 2 more
<python>:10:18: error: division by zero: 1/0
  10 | layers.0.unit='${1/0}'
     |                  ^
<python>:11:10: error: unknown layer 'Flat'
  11 | layers.1='Flat'
     |          ^
  expected: one of Add, Conv2D, Dense, Dropout, Flatten
  got: 'Flat' (text)
  hint: did you mean `Flatten`?
3 errors
"""
    )


BAD_NET = """\
netspec: 1
nam: lenet
inputs:
  image: {shape: [1, 28, -28]}
  label: {shape: [], dtype: int23}
layers:
  - {name: conv1, type: Conv2D, filter: "20", kernel_size: [5, 5, 5]}
  - {name: conv1, type: InnerProduct, units: 3}
  - {name: fc, type: Dense, num_output: 3, from: conv3}
outputs: logit
"""
BAD_TRAIN = """\
netspec: 1
net: net.yaml
data: {}
solver: {type: SGD, learning_rate: "0.1", momentum: 1.5}
train: {max_steps: 10_000, max_epochs: 1}
optimizer: adam
"""


def test_all_problems_of_all_files_are_reported_in_full(folder):
    write(folder, net=BAD_NET, train=BAD_TRAIN)
    assert (
        complaint("train.yaml", ["solver.momentun=0.5", "train.log_every=0"])
        == """\
<command line>:1:1: error: `SGD` has no field `momentun`
  1 | solver.momentun=0.5
    | ^
  expected: one of learning_rate, momentum, type
  hint: did you mean `momentum`?
<command line>:2:17: error: `log_every` is too small
  2 | train.log_every=0
    |                 ^
  expected: 1 or more
  got: 0
net.yaml:2:1: error: `net` has no field `nam`
  2 | nam: lenet
    | ^
  hint: did you mean `name`?
  expected: one of name, blocks, description, expect, include, inputs, layers, losses, metrics, netspec and 2 more
net.yaml:4:26: error: `shape.2` has an invalid value
  4 |   image: {shape: [1, 28, -28]}
    |                          ^
  expected: an integer of 1 or more
  got: -28 (a number)
net.yaml:5:29: error: `dtype` has an unknown value
  5 |   label: {shape: [], dtype: int23}
    |                             ^
  expected: one of float32, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool
  got: 'int23' (text)
  hint: did you mean `int32`?
net.yaml:7:33: error: `Conv2D` has no field `filter`
  7 |   - {name: conv1, type: Conv2D, filter: "20", kernel_size: [5, 5, 5]}
    |                                 ^
  hint: did you mean `filters`?
  expected: one of filters, activity_regularizer, from, if, kernel_initializer, kernel_size, \
learning_rate_multiplier, name, padding, repeat and 6 more
net.yaml:7:60: error: `kernel_size` is too long
  7 |   - {name: conv1, type: Conv2D, filter: "20", kernel_size: [5, 5, 5]}
    |                                                            ^
  expected: at most 2 items
  got: [5, 5, 5]
net.yaml:8:12: error: two layers are called `conv1`
  8 |   - {name: conv1, type: InnerProduct, units: 3}
    |            ^
  expected: a different name
  the first is at net.yaml:7:12
net.yaml:8:25: error: unknown layer 'InnerProduct'
  8 |   - {name: conv1, type: InnerProduct, units: 3}
    |                         ^
  expected: one of Add, Conv2D, Dense, Dropout, Flatten
  got: 'InnerProduct' (text)
  hint: InnerProduct is Caffe's name: use Dense
net.yaml:9:29: error: `Dense` has no field `num_output`
  9 |   - {name: fc, type: Dense, num_output: 3, from: conv3}
    |                             ^
  hint: `num_output` is Caffe's name: use `filters` (Conv2D) or `units` (Dense)
  expected: one of name, units, activation, activity_regularizer, from, if, learning_rate_multiplier, repeat, \
share, trainable and 2 more
net.yaml:9:50: error: there is no layer or input named `conv3`
  9 |   - {name: fc, type: Dense, num_output: 3, from: conv3}
    |                                                  ^
  expected: one of conv1, image, label
  hint: did you mean `conv1`?
net.yaml:10:10: error: there is no layer named `logit`
  10 | outputs: logit
     |          ^
  expected: one of conv1, fc
train.yaml:3:7: error: `data` needs `train`, which is missing
  3 | data: {}
    |       ^
  expected: `train: …` (samples to train on)
train.yaml:4:36: error: `learning_rate` has the wrong type
  4 | solver: {type: SGD, learning_rate: "0.1", momentum: 1.5}
    |                                    ^
  expected: a number or one of ExponentialDecay
  got: '0.1' (text)
  hint: remove the quotes: 0.1
train.yaml:4:53: error: `momentum` is too large
  4 | solver: {type: SGD, learning_rate: "0.1", momentum: 1.5}
    |                                                     ^
  expected: less than 1
  got: 1.5
train.yaml:5:20: error: `max_steps` is not an integer
  5 | train: {max_steps: 10_000, max_epochs: 1}
    |                    ^
  expected: an integer
  got: '10_000' (text)
  hint: write 10000
train.yaml:6:1: error: a training file has no field `optimizer`
  6 | optimizer: adam
    | ^
  hint: use `solver`
  expected: one of solver, callbacks, compile, data, description, expect, include, init_from, name, net and 6 more
17 errors
"""
    )


def test_which_kind_of_file(folder):
    write(folder, odd="netspec: 1\nlayres: []\n")
    with pytest.raises(SpecError, match="neither a net file nor a training file") as caught:
        load_spec("odd.yaml")
    assert caught.value.problems[0].hint == "did you mean `layers`?"
    with pytest.raises(SpecError, match="this is a training file, expected a net file") as caught:
        load_net("train.yaml")
    assert caught.value.problems[0].hint == "its net is `net.yaml`"
    with pytest.raises(SpecError, match="this is a net file, expected a training file"):
        load_train("net.yaml")


def test_a_net_that_is_not_there(folder):
    write(folder, train=TRAIN.replace("net.yaml", "nett.yaml").replace("max_steps", "max_step"))
    assert (
        complaint("train.yaml")
        == """\
train.yaml:2:6: error: no such file: nett.yaml
  2 | net: nett.yaml
    |      ^
  hint: did you mean `net.yaml`?
train.yaml:7:9: error: `train` has no field `max_step`
  7 | train: {max_step: 1000}
    |         ^
  hint: did you mean `max_steps`?
  expected: one of max_steps, accumulate, checkpoint_every, early_stopping, keep_checkpoints, log_every, \
log_gradient_norm, log_metrics, loss_scale, max_epochs and 8 more
2 errors
"""
    )


def test_operands_of_a_loss_must_be_plain(folder):
    write(folder, net=NET.replace("  label:", "  other: {shape: []}\n  label:"))
    assert (
        complaint("net.yaml")
        == """\
net.yaml:14:10: error: `from` is missing: it names what this loss compares
  14 | losses: [{type: SparseCategoricalCrossentropy, from_logits: true}]
     |          ^
  expected: `from: [prediction, target]`
  got: several inputs that no layer reads: label, other
"""
    )


WORDS = [
    "netspec",
    "layers",
    "type",
    "Dense",
    "units",
    "from",
    "conv1",
    "net.yaml",
    "${width}",
    "image",
    "1",
    "[]",
    "{}",
]
MESS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([*WORDS, "", "null", "[[1]]", "{a: {b: 1}}", "- x", ": ", "'"]))
)


@given(MESS)
def test_no_file_ends_in_a_traceback(tmp_path_factory, changes):
    folder = tmp_path_factory.getbasetemp()
    words = NET.split(" ")
    for index, word in changes:
        words[index % len(words)] = word
    write(folder, net=" ".join(words))
    try:
        load_spec(folder / "train.yaml")
        load_spec(folder / "net.yaml")
    except InputError as error:
        rendered = error.render()
    else:
        rendered = "fine"
    assert rendered


def test_numbers_beyond_64_bits_are_refused_in_python_data_too():
    with pytest.raises(SpecError, match="the number is too large") as error:
        load_net({"netspec": 1, "inputs": {"x": {"shape": [10**30]}}, "layers": [{"type": "Flatten"}]})
    assert error.value.problems[0].path == "inputs.x.shape.0"


def test_paths_lose_parent_folders_except_behind_links(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    location = Location(str(tmp_path / "a" / "train.yaml"), 1, 1)
    assert absolute("b/../../data.csv", location) == tmp_path / "data.csv"
    assert absolute("../link/../data.csv", location) == tmp_path / "a" / ".." / "link" / ".." / "data.csv"
