"""`netspec plot`: the learning rates of a training file, and the losses and metrics of runs."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from netspec.tools.comparing.run_curves import short_names
from netspec.training.plotting.chart_drawing import BOTTOM, HEIGHT, RIGHT, WIDTH, as_svg
from netspec.training.plotting.charts import AxisScale, Chart, Curve, as_text, number, ticks

SVG = "{http://www.w3.org/2000/svg}"
COSINE = "solver.learning_rate={type: CosineDecay, initial: 0.1}"


def test_the_curve_of_a_schedule_is_the_rate_at_each_step(netspec, work):
    (chart,) = netspec("plot", "train.yaml", COSINE, "--schedule", "--json").json
    (curve,) = chart["curves"]
    assert curve["x"] == list(range(1, 13))
    assert curve["y"][0] == 0.1
    assert curve["y"][6] == pytest.approx(0.05)
    assert "note" not in curve


def test_no_data_is_read_if_the_length_is_in_steps(netspec, work):
    (work / "blobs.npz").unlink()
    netspec.ok("plot", "train.yaml", "--schedule")
    result = netspec("plot", "train.yaml", "~train.max_steps", "train.max_epochs=2", "--schedule")
    assert result.status == 2
    assert "`max_epochs` can't be converted to steps" in result.err
    assert "train.max_steps=1000" in result.err


def test_epochs_are_counted_in_the_data(netspec, work):
    words = "plot", "train.yaml", "~train.max_steps", "train.max_epochs=2", "--schedule", "--json"
    assert netspec(*words).json[0]["curves"][0]["x"][-1] == 12  # 42 samples, batches of 8
    assert netspec(*words, "data.train.limit=16").json[0]["curves"][0]["x"][-1] == 4


def test_groups_and_plateaus_have_curves_of_their_own(netspec, work):
    plateau = "{type: ReduceLROnPlateau, schedule: 0.2}"
    words = "plot", "train.yaml", f"solver.groups=[{{match: '*/bias', learning_rate: {plateau}}}]", "--schedule"
    first, second = netspec(*words, "--json").json[0]["curves"]
    assert (first["name"], second["name"]) == ("learning_rate", "*/bias")
    assert set(second["y"]) == {0.2}
    assert "it watches `loss`" in second["note"]
    assert "*/bias (before any reduction" in netspec(*words).out


def test_a_scheduled_momentum_has_a_separate_chart(netspec, work):
    momentum = "solver={type: SGD, momentum: {type: OneCycle, initial: 0.95, peak: 0.85, end: 0.9}}"
    rate, chart = netspec("plot", "train.yaml", momentum, "--schedule", "--json").json
    assert (rate["title"], chart["title"]) == ("learning rate", "momentum")
    (curve,) = chart["curves"]
    assert (curve["name"], curve["y"][0], curve["y"][-1]) == ("momentum", 0.95, 0.9)
    netspec.ok("train", "train.yaml", momentum, "train.log_every=1", "--run-dir", "run")
    logged = netspec("plot", "run", "--schedule", "--json").json
    assert [event["title"] for event in logged] == ["learning rate", "momentum"]
    assert logged[1]["curves"][0]["y"] == curve["y"]


def test_parts_after_the_end_of_the_training_are_noted(netspec, work):
    parts = (
        "[{steps: 9, schedule: {type: Warmup, steps: 10, then: 0.1}}, {share: 0.5, schedule: 0.1}, {schedule: 0.01}]"
    )
    words = "plot", "train.yaml", f"solver.learning_rate={{type: ReduceLROnPlateau, schedule: {parts}}}", "--schedule"
    (curve,) = netspec(*words, "--json").json[0]["curves"]
    assert curve["note"].endswith("the end of a warm-up of 10 steps; never reached: part 3, from step 16")


def test_a_chart_is_drawn_in_the_terminal(netspec, work):
    lines = netspec("plot", "train.yaml", COSINE, "--schedule").out.splitlines()
    assert lines[0] == "learning rate"
    assert netspec("plot", ".", COSINE, "--schedule").out.splitlines() == lines
    assert lines[1].lstrip().startswith("0.1 ┤⠉")
    assert lines[-1].split() == ["1", "step", "12"]
    assert max(map(len, lines)) <= 100


def test_a_chart_is_written_as_svg(netspec, work):
    netspec.ok("plot", "train.yaml", COSINE, "--schedule", "--output", "rate.svg")
    drawing = ET.parse(work / "rate.svg").getroot()
    (line,) = drawing.iter(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert len(points) == 12
    assert all(y < z for (_, y), (_, z) in pairwise(points)), "down the page, as the rate falls"
    assert "learning rate" in [text.text for text in drawing.iter(f"{SVG}text")]


def test_the_figures_of_a_run(netspec, trained):
    loss, accuracy = netspec("plot", "run", "--json").json
    assert [curve["name"] for curve in loss["curves"]] == ["training", "test"]
    assert loss["curves"][0]["x"][-1] == 12
    assert accuracy["title"] == "accuracy"
    assert accuracy["curves"][0]["y"][-1] > 0.9
    (rate,) = netspec("plot", "run", "--schedule", "--json").json
    assert set(rate["curves"][0]["y"]) == {0.5}
    netspec.ok("plot", "run", "--log")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train.yaml",), "a training file has no losses to draw"),
        (("net.yaml", "--schedule"), "this is a net: it has no learning rate"),
        ((".",), "a training file has no losses to draw"),
        (("empty",), "is not a run directory"),
        (("train.yaml", "--schedule", "--output", "rate.pdf"), "--output: the file is written as SVG or PNG"),
        (("train.yaml", "nosuch", "--schedule"), "several arguments must all be run directories"),
        (("train.yaml", "--schedule", "--x", "hours"), "--x: there is no such axis"),
        (("train.yaml", "--schedule", "--output", "no/rate.svg"), "folder no does not exist"),
    ],
)
def test_charts_that_cannot_be_drawn_are_reported(netspec, work, words, message):
    (work / "empty").mkdir()
    result = netspec("plot", *words)
    assert result.status == 2
    assert message in result.err


def test_a_run_without_a_step_has_nothing_to_draw(netspec, work):
    (work / "run").mkdir()
    (work / "run" / "log.jsonl").write_text('{"event": "start"}\n{"event": "lo')
    result = netspec("plot", "run")
    assert result.status == 2
    assert "has no values yet" in result.err


def test_values_without_a_logarithm_are_left_out():
    curve = Curve("rate", [1, 2, 3, 4], [0.0, 1.0, float("nan"), 100.0])
    chart = Chart("rate", "step", [curve], AxisScale(logarithmic=True))
    assert curve.points(chart.scale) == [(2, 0.0), (4, 2.0)]
    assert any("100" in line for line in as_text(chart, 60))
    empty = Chart("rate", "step", [Curve("rate", [1], [0.0])], AxisScale(logarithmic=True))
    assert "nothing to draw" in "\n".join(as_text(empty, 60))
    assert "nothing to draw" in as_svg([empty])


def test_a_single_value_is_a_dot_inside_of_the_axes_and_a_line_of_text():
    curves = [Curve("training", [1, 40], [3.0, 1.2]), Curve("test", [40], [0.9])]
    chart = Chart("loss", "step", curves)
    drawing = ET.fromstring(as_svg([chart]))
    dot, legend = drawing.findall("{*}circle")
    assert dot.get("fill") == legend.get("fill") != drawing.findall("{*}polyline")[0].get("stroke")
    radius = float(dot.get("r", ""))
    assert float(dot.get("cx", "")) + radius < WIDTH - RIGHT
    assert float(dot.get("cy", "")) + radius < HEIGHT - BOTTOM
    assert list(as_text(chart, 70))[-2:] == ["loss: test", "  0.9 at step 40"]


def test_text_in_a_drawing_is_escaped():
    drawing = as_svg([Chart("a < b & c", "step", [Curve("<x>", [1, 2], [1.0, 1.0])])])
    assert "a < b & c" in [text.text for text in ET.fromstring(drawing).iter(f"{SVG}text")]


def test_numbers_of_axes_are_round():
    assert ticks(0.0, 0.1) == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08, 0.1])
    assert ticks(1, 10_000, 8) == pytest.approx([2000, 4000, 6000, 8000, 10_000])
    assert [number(value) for value in (0, 0.05, 12_000, 1.5e-7, 2e9)] == ["0", "0.05", "12,000", "1.5e-7", "2e9"]


@pytest.fixture
def two_runs(netspec, work):
    """Runs of different learning rates: `slow` and `fast`."""
    for name, rate in (("slow", 0.01), ("fast", 0.1)):
        words = "train", "train.yaml", f"solver.learning_rate={rate}", "train.test_every=4", "--run-dir", name
        netspec.ok(*words)
    return work


def test_runs_are_drawn_in_the_same_charts_named_by_what_differs(netspec, two_runs):
    loss, accuracy = netspec("plot", "slow", "fast", "--json").json
    slow, fast = "slow: learning_rate.initial 0.01", "fast: learning_rate.initial 0.1"
    assert [curve["name"] for curve in loss["curves"]] == [
        f"{slow} training", f"{slow} test", f"{fast} training", f"{fast} test",
    ]  # fmt: skip
    assert [curve["x"] for curve in accuracy["curves"]] == [[1, 4, 8, 12], [4, 8, 12]] * 2
    lines = netspec("plot", "slow", "fast", "--metric", "accuracy").out.splitlines()
    assert lines[0] == f"accuracy: {slow} training"
    labels = [line.split()[0] for line in lines if "┤" in line]
    assert labels[: len(labels) // 2] == labels[len(labels) // 2 :], "both have the same scale"


def test_a_run_has_one_color_in_a_drawing_and_dashes_for_training(netspec, two_runs):
    netspec.ok("plot", "slow", "fast", "--output", "runs.svg")
    drawing = ET.parse(two_runs / "runs.svg").getroot()
    lines = [(line.get("stroke"), line.get("stroke-dasharray")) for line in drawing.iter(f"{SVG}polyline")]
    slow, fast = "#0072b2", "#d55e00"
    assert lines == [(slow, "6 3"), (slow, None), (fast, "6 3"), (fast, None)] * 2
    texts = [text.text for text in drawing.iter(f"{SVG}text")]
    assert texts.count("slow: learning_rate.initial 0.01") == 2
    assert texts.count("training") == texts.count("test") == 2


def test_a_png_shows_the_curves_in_their_colors(netspec, two_runs):
    netspec.ok("plot", "slow", "fast", "--metric", "loss", "--output", "runs.png")
    with Image.open(two_runs / "runs.png") as drawing:
        colors = {color for count, color in drawing.getcolors(1 << 24) or [] if count > 50}
        assert drawing.width == 1440
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (255, 255, 255)} <= colors


def test_runs_are_drawn_over_epochs_and_time(netspec, two_runs):
    (chart,) = netspec("plot", "slow", "fast", "--metric", "accuracy", "--x", "epoch", "--json").json
    assert (chart["x"], chart["curves"][1]["x"]) == ("epoch", pytest.approx([4 / 6, 8 / 6, 2]))
    (chart,) = netspec("plot", "slow", "--metric", "learning_rate", "--x", "time", "--json").json
    assert (chart["title"], chart["x"]) == ("learning rate", "time, s")
    (curve,) = chart["curves"]
    assert 0 < curve["x"][0] <= curve["x"][-1] < 60
    log = two_runs / "fast" / "log.jsonl"
    log.write_text(re.sub(r', "elapsed": [0-9.]+', "", log.read_text()))
    assert "the log of fast has no times" in netspec("plot", "slow", "fast", "--x", "time").err
    assert "did you mean `accuracy`?" in netspec("plot", "slow", "--metric", "acuracy").err


def test_settings_in_legends_are_as_short_as_is_clear():
    names = short_names(["solver.learning_rate.initial", "net.layers.a.units", "net.blocks.a.units", "train.seed"])
    assert list(names.values()) == ["learning_rate.initial", "layers.a.units", "blocks.a.units", "train.seed"]
