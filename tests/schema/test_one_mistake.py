"""One mistake in a spec is reported as one problem, with location, text and hint."""

from __future__ import annotations

import pytest

from netspec.errors import SpecError
from netspec.schema.load import load_net
from tests.schema.specs import NET, write

CONV = "- {name: c, type: Conv2D, filters: 3, kernel_size: 3, "
LINES = [
    # One mistake in a layer, an input or a section: location, message, expected, got, hint.
    (
        "- {name: c, type: Dense}",
        "11:5",
        "`Dense` needs `units`, which is missing",
        "`units: …` (number of outputs)",
        None,
        None,
    ),
    (
        "- {name: c, type: Dense, units: }",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "nothing (null)",
        "give a value after the `:`, or leave the key out",
    ),
    (
        "- {name: c, type: Dense, units: 5.0}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "5.0 (a number)",
        "write 5",
    ),
    (
        "- {name: c, type: Dense, units: '5'}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "'5' (text)",
        "remove the quotes: 5",
    ),
    (
        "- {name: c, type: Dense, units: five}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "'five' (text)",
        None,
    ),
    (
        "- {name: c, type: Dense, units: 2*3}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "'2*3' (text)",
        "write arithmetic as ${2*3}",
    ),
    (
        "- {name: c, type: Dense, units: true}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "true (a boolean)",
        None,
    ),
    (
        "- {name: c, type: Dense, units: [1]}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "[1]",
        "write 1",
    ),
    (
        "- {name: c, type: Dense, units: {a: 1}}",
        "11:35",
        "`units` is not an integer",
        "an integer",
        "a mapping with keys a",
        None,
    ),
    ("- {name: c, type: Dense, units: -1}", "11:35", "`units` is too small", "1 or more", "-1", None),
    ("- {name: c, type: Dropout, rate: 1.0}", "11:36", "`rate` is too large", "less than 1", "1.0", None),
    (
        "- {name: c, type: Dropout, rate: 50%}",
        "11:36",
        "`rate` is not a number",
        "a number",
        "'50%' (text)",
        "write 0.5",
    ),
    (
        "- {name: c, type: Dropout, rate: .nan}",
        "11:36",
        "`rate` is not a finite number",
        "a finite number",
        "nan (a number)",
        None,
    ),
    (
        "- {name: c, type: Dropout, p: 0.5}",
        "11:30",
        "`Dropout` has no field `p`",
        None,
        None,
        "`p` is PyTorch's name: use `rate`",
    ),
    (
        CONV + "use_bias: no}",
        "11:67",
        "`use_bias` is not true or false",
        "true or false",
        "'no' (text)",
        "in YAML 1.2 `no` is text: write false",
    ),
    (CONV + "use_bias: 0}", "11:67", "`use_bias` is not true or false", "true or false", "0 (a number)", "write false"),
    (
        CONV + "padding: sam}",
        "11:66",
        "`padding` has an unknown value",
        "one of valid, same",
        "'sam' (text)",
        "did you mean `same`?",
    ),
    (CONV + "strides: 2}", "11:66", "`strides` is not a list", "a list", "2 (a number)", "write [2]"),
    (CONV + "strides: [2]}", "11:66", "`strides` is too short", "at least 2 items", "[2]", None),
    (CONV + "strides: [2, x]}", "11:70", "`strides.1` is not an integer", "an integer", "'x' (text)", None),
    (CONV + "stride: 2}", "11:57", "`Conv2D` has no field `stride`", None, None, "use `strides`"),
    (
        CONV + "kernel_initializer: xavier_uniform}",
        "11:77",
        "unknown initializer 'xavier_uniform'",
        "one of GlorotUniform",
        "'xavier_uniform' (text)",
        "xavier_uniform is PyTorch's name: use GlorotUniform",
    ),
    (
        CONV + "kernel_initializer: 3}",
        "11:77",
        "an initializer must be a name or a mapping",
        None,
        "3 (a number)",
        "write `{type: Constant, value: 3}`",
    ),
    (
        CONV + "kernel_initializer: {type: GlorotUniform, scale: 0}}",
        "11:106",
        "`scale` is too small",
        "more than 0",
        "0",
        None,
    ),
    (
        CONV + "kernel_initializer: {type: GlorotUniform, scal: 1}}",
        "11:99",
        "`GlorotUniform` has no field `scal`",
        "one of scale, type",
        None,
        "did you mean `scale`?",
    ),
    (
        CONV + "learning_rate_multiplier: x}",
        "11:83",
        "`learning_rate_multiplier` has the wrong type",
        "a number or a mapping",
        "'x' (text)",
        None,
    ),
    (
        CONV + "learning_rate_multiplier: {kernel: -1}}",
        "11:92",
        "`kernel` is too small",
        "0 or more",
        "-1",
        None,
    ),
    (
        "- {name: c, type: Conv2D, filters: 3, kernel_size: big}",
        "11:54",
        "`kernel_size` has the wrong type",
        "an integer or a list of 2 integers",
        "'big' (text)",
        None,
    ),
    (
        "- {name: c, type: Conv2D, filters: 3, kernel_size: [1, x]}",
        "11:58",
        "`kernel_size.1` is not an integer",
        "an integer",
        "'x' (text)",
        None,
    ),
    (
        "- {name: c, type: conv2d, filters: 3, kernel_size: 5}",
        "11:21",
        "unknown layer 'conv2d'",
        None,
        "'conv2d' (text)",
        "did you mean `Conv2D`?",
    ),
    ("- {name: c, type: BatchNorm}", "11:21", "unknown layer 'BatchNorm'", None, "'BatchNorm' (text)", None),
    (
        "- {name: c, type: SoftmaxWithLoss}",
        "11:21",
        "unknown layer 'SoftmaxWithLoss'",
        None,
        None,
        "a loss belongs under `losses`: SparseCategoricalCrossentropy with `from_logits: true`",
    ),
    ("- {name: c, type: 5}", "11:21", "`type` of a layer must be a name", None, "5 (a number)", None),
    ("- {name: c, units: 3}", "11:5", "this layer has no `type`", None, "a mapping with keys name, units", None),
    ("- Dense: {units: 3}", "11:5", "this layer has no `type`", None, None, "write `{type: Dense, …}`"),
    (
        "- 5",
        "11:5",
        "a layer must be a name or a mapping",
        "the name of a type, or a mapping with `type`",
        "5 (a number)",
        None,
    ),
    ("- {name: 5, type: Flatten}", "11:12", "`name` is not text", "text", "5 (a number)", 'write it in quotes: "5"'),
    (
        "- {name: a b, type: Flatten}",
        "11:12",
        "`name` is not a valid name",
        None,
        "'a b' (text)",
        "spaces are not allowed in names",
    ),
    ("- {name: image, type: Flatten}", "11:12", "the layer `image` has the name of an input", None, None, None),
    ("- {name: flat, type: Flatten}", "11:12", "two layers are called `flat`", None, None, None),
    (
        "- {name: c, type: Flatten, from: flta}",
        "11:36",
        "there is no layer or input named `flta`",
        "one of conv1, flat, image, label",
        None,
        "did you mean `flat`?",
    ),
    (
        "- {name: c, type: Add, from: [flat, logit]}",
        "11:39",
        "there is no layer or input named `logit`",
        None,
        None,
        "did you mean `logits`?",
    ),
    (
        "- {name: c, type: Add, from: [flat, logits]}",
        "11:39",
        "the layer reads `logits`, which comes later",
        None,
        None,
        "layers must come after those they read",
    ),
    (
        "- {name: c, type: Flatten, from: c}",
        "11:36",
        "the layer reads itself",
        None,
        None,
        "layers must come after those they read",
    ),
    (
        "- {name: c, type: Flatten, from: 3}",
        "11:36",
        "`from` has an invalid value",
        "a name, or a list of 1 or more names",
        "3 (a number)",
        None,
    ),
    (
        "- {name: c, type: Flatten, bottom: flat}",
        "11:30",
        "`Flatten` has no field `bottom`",
        None,
        None,
        "`bottom` is Caffe's name: use `from`",
    ),
    (
        "- {name: c, type: Dense, units: 3, share: conv1}",
        "11:45",
        "only layers of the same type can share parameters",
        None,
        "`conv1` is of the type Conv2D",
        None,
    ),
    (
        "- {name: c, type: Dense, units: 3, share: logits}",
        "11:45",
        "`logits` comes later",
        "an earlier layer of the type Dense",
        None,
        None,
    ),
    (
        "- {name: c, type: Dense, units: 3, share: cnov1}",
        "11:45",
        "`share`: there is no layer named `cnov1`",
        None,
        None,
        "did you mean `conv1`?",
    ),
    (
        "- {name: c, type: Dense, units: '${widht}'}",
        "11:38",
        "no variable `widht` is declared",
        "one of width",
        None,
        "did you mean `width`?",
    ),
]
FRAME = """\
netspec: 1
vars: {width: 3}
inputs:
  image: {shape: [1, 28, 28]}
  label:
    shape: []
    dtype: int32
layers:
  - {name: conv1, type: Conv2D, filters: 2, kernel_size: 3}
  - {name: flat, type: Flatten}
  THE LINE
  - {name: logits, type: Dense, units: 10}
"""


@pytest.mark.parametrize(
    ("line", "position", "message", "expected", "got", "hint"), LINES, ids=[case[0] for case in LINES]
)
def test_one_wrong_layer_is_one_problem(folder, line, position, message, expected, got, hint):
    write(folder, net=FRAME.replace("THE LINE", line))
    with pytest.raises(SpecError) as caught:
        load_net("net.yaml")
    (problem,) = caught.value.problems
    assert (str(problem.location), problem.message) == (f"net.yaml:{position}", message)
    assert expected is None or problem.expected == expected
    assert got is None or problem.got == got
    assert problem.hint == hint


SECTIONS = [
    ("losses:", "loss:", "net.yaml:13:1", "use `losses`, a list"),
    ("from: [logits, label]", "from: [logit, label]", "net.yaml:14:52", "did you mean `logits`?"),
    (
        "label: {shape: []",
        "label: {dim: []",
        "net.yaml:6:11",
        "`dim` is Caffe's name: use `shape`, without the batch axis",
    ),
    ("image:", "'im age':", "net.yaml:5:3", "spaces are not allowed in names"),
    (
        "metrics: [{type: SparseCategoricalAccuracy",
        "metrics: [{type: accuracy",
        "net.yaml:14:18",
        "accuracy is Keras's short name: use SparseCategoricalAccuracy",
    ),
    ("inputs:", "input:", "net.yaml:4:1", "did you mean `inputs`?"),
    ("netspec: 1\n", "", "net.yaml:1:1", "write `netspec: 1` on the first line"),
    ("vars: {width: 20}", "vars: {width: null}", "net.yaml:3:15", "give a value after the `:`, or leave the key out"),
]


@pytest.mark.parametrize(("old", "new", "position", "hint"), SECTIONS)
def test_one_wrong_word_in_other_sections(folder, old, new, position, hint):
    write(folder, net=NET.replace(old, new))
    with pytest.raises(SpecError) as caught:
        load_net("net.yaml")
    hints = {str(problem.location): problem.hint for problem in caught.value.problems}
    assert hints[position] == hint


def test_mistake_behind_an_alias_is_reported_once(folder):
    write(folder, net=FRAME.replace("vars:", "x: 1\nvars:").replace("THE LINE", "- &a {type: Dense, units: x}\n  - *a"))
    with pytest.raises(SpecError) as caught:
        load_net("net.yaml")
    assert [problem.message for problem in caught.value.problems] == [
        "a net file has no field `x`",
        "`units` is not an integer",
    ]
