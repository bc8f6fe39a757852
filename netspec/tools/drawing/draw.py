"""`draw`: the layers of a net as SVG, PNG or Mermaid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from netspec.backends.device_registry import open_device
from netspec.compile import ProgramKind
from netspec.compile.layer_costs import layer_costs
from netspec.errors import InputError, counted
from netspec.exchange.files import write_text_atomically
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.compilers import compiler_for
from netspec.tools.drawing.diagram_layout import layout_diagram
from netspec.tools.drawing.net_diagram import DiagramBox, NetDiagram, net_diagram
from netspec.tools.measuring import timing as timings
from netspec.tools.measuring.timing import Timing
from netspec.tools.model_inputs import is_model_file, open_any
from netspec.tools.specs import load_spec, net_of
from netspec.training.events import short_duration
from netspec.training.plotting.drawing import CHARACTER, Box, Drawing, Polyline, Shape, Text, write_drawing

SUFFIXES = (".svg", ".png", ".mmd")
"""Formats of a diagram, by suffix; `.mmd` is Mermaid."""
MARGIN, LINE = 12.0, 16.0
"""Space around a drawing, and height of a line of text."""
ARROW = "#555555"
FILLS = {"input": ("#f2f2f2", "#888888"), "layer": ("#eaf3fa", "#0072b2"), "block": ("#fdf3e2", "#b77400")}
"""Fill and edge of boxes, by kind."""
WIDE = 7.2
"""Width of a character in a box: that of the wider fonts."""
MAX_CHARACTERS = 44
"""Length to which lines in a box are shortened."""


def draw(
    source: Source,
    *,
    output: str | Path | None = None,
    overrides: Overrides = (),
    expand: bool = False,
    shapes: bool = False,
    parameters: bool = False,
    time: bool = False,
    device: str = "auto",
) -> NetDiagram:
    """Draw the layers of a net, and the values that they pass on; a block is one box, or with `expand` all its layers.

    `source` is a net or training file, a run directory or a model file. `shapes` adds the shape of each output,
    `parameters` the number of parameters, and `time` the measured time of a step (with a training file, of a training
    step of a batch) on `device`. `output` names a file: `.svg`, `.png`, or `.mmd` for Mermaid.

    Raises `InputError` if the spec is wrong, or `output` has another suffix.

        >>> netspec.draw("net.yaml", output="net.svg", shapes=True)
    """
    path = None if output is None else Path(output)
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise InputError(
            "nets are drawn as SVG, PNG or Mermaid", expected="a file name that ends in .svg, .png or .mmd",
            got=str(path),
        )  # fmt: skip
    spec = _spec(source, overrides)
    diagram = annotate(
        net_diagram(net_of(spec), expand=expand), spec, shapes=shapes, parameters=parameters,
        timing=_timing(source, overrides, spec, device) if time else None,
    )  # fmt: skip
    if path is not None and path.suffix.lower() == ".mmd":
        write_text_atomically(path, mermaid(diagram))
    elif path is not None:
        write_drawing(drawing_of(diagram), path)
    return diagram


def _spec(source: Source, overrides: Overrides) -> NetSpec | TrainSpec:
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        if overrides:
            raise InputError("the settings of a model file cannot be changed", got=" ".join(map(str, overrides)))
        return open_any(source).net
    return load_spec(source, overrides)


def _timing(source: Source, overrides: Overrides, spec: NetSpec | TrainSpec, device: str) -> Timing:
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        return timings.time_compiled(compiler_for(spec, None, open_device(device)), 1, None, perf_counter())
    return timings.time(source, overrides=overrides, device=device)


def annotate(
    diagram: NetDiagram, spec: NetSpec | TrainSpec, *, shapes: bool, parameters: bool, timing: Timing | None = None
) -> NetDiagram:
    """Return a diagram with shapes, numbers of parameters, and times of its boxes."""
    counts, outputs = dict[str, int](), dict[str, tuple[int, ...]]()
    if shapes or parameters:
        compiler = compiler_for(spec, None, open_device("null"))
        for layer in layer_costs(compiler, compiler.net_graph(ProgramKind.PREDICT, 1)):
            counts[layer.name], outputs[layer.name] = layer.parameters, layer.output_shape[1:]
        outputs |= {name: tuple(field.shape) for name, field in compiler.spec.inputs.items()}
    timed = {} if timing is None else {layer.name: layer.seconds for layer in timing.layers}

    def box(each: DiagramBox) -> DiagramBox:
        return replace(
            each,
            shape=outputs[(each.layers or (each.name,))[-1]] if shapes else None,
            parameters=sum(counts[name] for name in each.layers) if parameters else None,
            seconds=sum(timed.get(name, 0.0) for name in each.layers) if timing is not None and each.layers else None,
        )

    described = "" if timing is None else f"{_step(timing)} on {timing.device}"
    return replace(diagram, boxes=tuple(map(box, diagram.boxes)), timed=described)


def _step(timing: Timing) -> str:
    kind = "training step" if timing.purpose == "train" else "prediction"
    return f"{kind} of {counted(timing.batch_size * timing.batches, 'sample')}"


def box_lines(box: DiagramBox) -> list[str]:
    """Return the text of a box, a line each; the first one is the name."""
    repeats = f" ×{box.repeats}" if box.repeats > 1 else ""
    facts = [] if box.shape is None else [" × ".join(map(str, box.shape)) or "scalar"]
    facts += [] if not box.parameters else [counted(box.parameters, "parameter")]
    facts += [] if box.seconds is None else [short_duration(box.seconds)]
    kind = box.type or box.kind
    return [_short(box.name.rstrip("/") + repeats), _short(f"{kind} (output)" if box.is_output else kind), *facts]


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def mermaid(diagram: NetDiagram) -> str:
    """Return a diagram in the language of Mermaid, which GitHub and many editors draw."""
    numbers = {box.name: f"n{number}" for number, box in enumerate(diagram.boxes)}
    brackets = {"input": ("([", "])"), "layer": ("[", "]"), "block": ("[[", "]]")}
    lines = ["flowchart TD"]
    for box in diagram.boxes:
        opening, closing = brackets[box.kind]
        text = "<br/>".join(map(_entities, box_lines(box)))
        lines.append(f'  {numbers[box.name]}{opening}"{text}"{closing}')
    lines += [f"  {numbers[source]} --> {numbers[target]}" for source, target in diagram.arrows]
    return "\n".join(lines) + "\n"


def _entities(text: str) -> str:
    """Escape what has a meaning in Mermaid or HTML, by numeric entities of Mermaid."""
    return re.sub(r"[^\w ,./()×…µ:-]", lambda found: f"#{ord(found[0])};", text)


def drawing_of(diagram: NetDiagram) -> Drawing:
    """Return a diagram as a drawing."""
    lines = {box.name: box_lines(box) for box in diagram.boxes}
    sizes = {name: (max(map(len, texts)) * WIDE + 20, LINE * len(texts) + 8) for name, texts in lines.items()}
    placed = layout_diagram(diagram, sizes)
    shapes: list[Shape] = []
    for points in placed.arrows:
        moved = [(x + MARGIN, y + MARGIN) for x, y in points]
        (x, y) = moved[-1]
        shapes += [Polyline(moved, ARROW), Polyline([(x - 4, y - 6), (x, y), (x + 4, y - 6)], ARROW, 1.5)]
    for box in diagram.boxes:
        shapes += _box_shapes(box, lines[box.name], placed.boxes[box.name], sizes)
    bottom = placed.height + 2 * MARGIN
    if diagram.timed:
        shapes.append(Text(MARGIN, bottom + LINE / 2 - 4, f"times: {diagram.timed}", color=ARROW))
        bottom += LINE
    width = max(
        placed.width + 2 * MARGIN, 2 * MARGIN + CHARACTER * len(f"times: {diagram.timed}") * bool(diagram.timed)
    )
    return Drawing(round(width), round(bottom), shapes, f"layers of {diagram.name or 'the net'}")


def _box_shapes(
    box: DiagramBox, lines: list[str], top: tuple[float, float], sizes: Mapping[str, tuple[float, float]]
) -> Iterator[Shape]:
    (width, height), (x, y) = sizes[box.name], (top[0] + MARGIN, top[1] + MARGIN)
    fill, edge = FILLS[box.kind]
    if box.kind == "block":  # a second box behind it
        yield Box(x - width / 2 + 4, y + 4, width, height, fill, edge)
    yield Box(x - width / 2, y, width, height, fill, edge, radius=18.0 if box.kind == "input" else 5.0)
    for number, line in enumerate(lines):
        color = "#000000" if number == 0 else "#444444"
        yield Text(x, y + 4 + LINE * (number + 0.5), line, "middle", color, bold=number == 0)
