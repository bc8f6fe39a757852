"""`netspec.draw`: blocks, shapes and times of a net's boxes, and where they are drawn."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

import netspec
from netspec.schema.load import load_net
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.drawing.diagram_layout import layout_diagram
from netspec.tools.drawing.draw import box_lines, drawing_of, mermaid
from netspec.tools.drawing.net_diagram import DiagramBox, NetDiagram, net_diagram
from netspec.tools.measuring import timing
from netspec.tools.measuring.roofline import Roofline
from netspec.training.plotting.drawing import Box, Polyline, svg

RESIDUAL = """\
netspec: 1
name: residual
inputs:
  image: {shape: [3, 8, 8]}
  label: {shape: [], dtype: int32}
blocks:
  unit:
    layers:
      - {name: conv, type: Conv2D, filters: 4, kernel_size: 3, padding: same}
      - {name: relu, type: ReLU}
      - {name: sum, type: Add, from: [relu, input]}
layers:
  - {name: stem, type: Conv2D, filters: 4, kernel_size: 1}
  - {name: stage, type: unit, repeat: 3}
  - {name: pool, type: GlobalAveragePooling2D}
  - {name: logits, type: Dense, units: 2}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""
NETS = Path(__file__).parents[1] / "nets"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "net.yaml").write_text(RESIDUAL)
    return tmp_path / "net.yaml"


def test_repetitions_are_one_box_with_all_their_parameters(net):
    diagram = netspec.draw(net, shapes=True, parameters=True)
    assert [box.name for box in diagram.boxes] == ["image", "stem", "stage/", "pool", "logits"]
    assert diagram.arrows == (("image", "stem"), ("stem", "stage/"), ("stage/", "pool"), ("pool", "logits"))
    stage = diagram.boxes[2]
    assert (stage.kind, stage.repeats, stage.type) == ("block", 3, "Conv2D, ReLU, Add")
    assert box_lines(stage) == ["stage ×3", "Conv2D, ReLU, Add", "4 × 8 × 8", "444 parameters"]
    assert sum(box.parameters or 0 for box in diagram.boxes) == netspec.plan(net).costs.parameters
    assert [box.name for box in diagram.boxes if box.is_output] == ["logits"]


def test_expanded_blocks_show_the_layers_that_skip(net):
    diagram = netspec.draw(net, expand=True)
    assert [box.kind for box in diagram.boxes] == ["input", *["layer"] * 12]
    assert ("stem", "stage/0/sum") in diagram.arrows
    assert ("stage/0/sum", "stage/1/conv") in diagram.arrows


def test_different_parts_with_numbers_are_different_boxes():
    layers = {"a/0/x/c": "ReLU", "a/0/y": "Softmax", "a/1/x/c": "ReLU", "a/1/x/d": "ReLU"}
    lines = "".join(f"  - {{name: {name}, type: {kind}}}\n" for name, kind in layers.items())
    diagram = diagram_of(f"netspec: 1\ninputs: {{x: {{shape: [2]}}}}\nlayers:\n{lines}")
    assert [(box.name, box.type) for box in diagram.boxes[1:]] == [("a/0/", "ReLU, Softmax"), ("a/1/", "ReLU ×2")]


def test_blocks_in_a_block_that_is_part_of_a_cycle_are_drawn():
    text = """\
netspec: 1
inputs: {x: {shape: [2]}}
layers:
  - {name: a/first, type: ReLU}
  - {name: between, type: ReLU}
  - {name: a/inner/c, type: ReLU}
  - {name: a/inner/d, type: ReLU}
  - {name: a/last, type: Add, from: [a/inner/d, a/first]}
  - {name: b/first, type: ReLU}
  - {name: b/last, type: ReLU}
"""
    assert [box.name for box in diagram_of(text).boxes] == ["x", "a/first", "between", "a/inner/", "a/last", "b/"]


def test_an_output_of_a_layer_with_several_is_drawn_from_the_layer():
    text = """\
netspec: 1
inputs: {x: {shape: [4]}}
layers:
  - {name: halves, type: Split, axis: 1, sections: 2}
  - {name: sum, type: Add, from: [halves.0, halves.1]}
"""
    assert diagram_of(text).arrows == (("x", "halves"), ("halves", "sum"))


def diagram_of(text: str) -> NetDiagram:
    return net_diagram(load_net(parse_yaml(text, "net.yaml")))


def test_times_are_those_of_the_layers(net, monkeypatch):
    monkeypatch.setattr(timing, "BUDGET", 0.0)
    monkeypatch.setattr(timing, "measure_roofline", lambda device, dtype: Roofline(1e9, 1e9))
    diagram = netspec.draw(net, time=True, device="reference")
    assert all(box.seconds for box in diagram.boxes if box.kind != "input")
    assert diagram.timed == "training step of 1 sample on reference"


@pytest.mark.parametrize("name", ["unet", "resnet50", "transformer"])
def test_boxes_do_not_overlap_and_no_arrow_crosses_one(name):
    drawing = drawing_of(netspec.draw(NETS / f"{name}.yaml", expand=True))
    boxes = [shape for shape in drawing.shapes if isinstance(shape, Box)]
    for a, b in combinations(boxes, 2):
        apart = a.x + a.width < b.x or b.x + b.width < a.x or a.y + a.height < b.y or b.y + b.height < a.y
        assert apart, (a, b)
    for line in (shape for shape in drawing.shapes if isinstance(shape, Polyline)):
        for (x, y), (x2, y2) in zip(line.points[1:-2], line.points[2:-1], strict=True):
            for box in boxes if x == x2 else ():
                assert not (box.x < x < box.x + box.width and y < box.y + box.height and box.y < y2), (box, line)
    assert all(box.x >= 0 and box.x + box.width <= drawing.width for box in boxes)
    assert all(box.y >= 0 and box.y + box.height <= drawing.height for box in boxes)


def test_a_chain_is_straight():
    boxes = tuple(DiagramBox(name, "layer", "ReLU", (name,)) for name in "abcd")
    diagram = NetDiagram("chain", boxes, (("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")))
    placed = layout_diagram(diagram, {"a": (30, 10), "b": (80, 10), "c": (20, 10), "d": (50, 10)})
    assert len({x for x, _ in placed.boxes.values()}) == 1
    skip = placed.arrows[1]
    assert abs(skip[1][0] - placed.boxes["b"][0]) > 40, "it passes the box"


def test_names_are_escaped():
    box = DiagramBox('<b>"a"]&amp;', "layer", "ReLU", ("x",))
    diagram = NetDiagram("<script>", (box,), ())
    assert "#60;b#62;#34;a#34;#93;#38;amp#59;<br/>ReLU" in mermaid(diagram)
    root = ET.fromstring(svg(drawing_of(diagram)))
    assert [text.text for text in root.findall("{*}text")] == ['<b>"a"]&amp;', "ReLU"]
    assert root.findtext("{*}title") == "layers of <script>"


def test_files_by_suffix(net, tmp_path):
    for name in ("net.svg", "net.png", "net.mmd"):
        netspec.draw(net, output=tmp_path / name)
    assert ET.parse(tmp_path / "net.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "net.png") as image:
        assert (0xFD, 0xF3, 0xE2) in {color for _, color in image.convert("RGB").getcolors(10**6) or ()}
    assert (tmp_path / "net.mmd").read_text().startswith("flowchart TD\n")
    with pytest.raises(netspec.InputError, match="drawn as SVG, PNG or Mermaid"):
        netspec.draw(net, output=tmp_path / "net.pdf")


def test_a_model_file_is_drawn(net, tmp_path):
    netspec.load(net, device="reference").save_weights(tmp_path / "weights.h5")
    assert netspec.draw(tmp_path / "weights.h5").arrows == netspec.draw(net).arrows
    with pytest.raises(netspec.InputError, match="settings of a model file"):
        netspec.draw(tmp_path / "weights.h5", overrides=["name=x"])
