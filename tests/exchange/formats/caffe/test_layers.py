"""Each layer of Caffe becomes a line of YAML like one that a person would write.

The cases are in `layers.txt`: `# name: sizes of the input x`, layers of a prototxt, `->`, layers of the net file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netspec.compile.build import build
from netspec.exchange.formats.caffe.importer import rules
from tests.exchange.formats.caffe.prototxt import drafted, lines, spec_of, with_input

CASES = {
    match[1]: (tuple(map(int, match[2].split())), match[3], match[4].splitlines())
    for match in re.finditer(
        r"^# ([^\n]+): ([\d ]+)\n(.+?)\n->\n(.+?)\n(?=\n|\Z)",
        Path(__file__).with_name("layers.txt").read_text(),
        re.MULTILINE | re.DOTALL,
    )
}
JUDGING = {
    "Accuracy", "ContrastiveLoss", "EuclideanLoss", "HingeLoss", "InfogainLoss", "MultinomialLogisticLoss",
    "SigmoidCrossEntropyLoss", "SoftmaxWithLoss",
}  # fmt: skip
REFUSED = {"Python", "Filter", "Parameter", "RNNUnit", "Recurrent"}


@pytest.mark.parametrize("case", CASES)
def test_layers(case):
    dims, text, expected = CASES[case]
    net_draft = drafted(with_input(text, *dims))
    assert lines(net_draft) == expected
    build(spec_of(net_draft), 2, training=True)


def test_every_type_has_a_case_or_is_tested_elsewhere():
    covered = {type_ for _, text, _ in CASES.values() for type_ in re.findall(r'type: "(\w+)"', text)}
    assert set(rules()) - covered - JUDGING - REFUSED == {"BatchReindex", "Im2col", "LSTM", "LSTMUnit", "RNN"}
