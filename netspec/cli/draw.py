"""`netspec draw`: the layers of a net as SVG, PNG or Mermaid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import AnyModel, Device, Json, Overrides, Threads, writable
from netspec.cli.output import print_json

app = CommandApp()


@app.add_command(
    "netspec draw net.yaml --shapes --output net.svg",
    "netspec draw net.yaml >> README.md",
    "netspec draw runs/lenet_mnist --parameters --time --expand --output net.png",
)
def draw(
    spec: AnyModel,
    overrides: Overrides = None,
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an SVG, PNG or Mermaid (.mmd) file.")
    ] = None,
    expand: Annotated[bool, typer.Option("--expand", help="Draw each layer of a block.")] = False,
    shapes: Annotated[bool, typer.Option("--shapes", help="Show the shape of each output.")] = False,
    parameters: Annotated[bool, typer.Option("--parameters", help="Show the number of parameters.")] = False,
    time: Annotated[bool, typer.Option("--time", help="Measure a step, and show the time of each box.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Draw the layers of a net, with each block as one box.

    The layers of a block and its repetitions, whose names share the part before a slash, are one box with the number of
    repetitions. Without --output, prints a Mermaid code block, which GitHub renders.
    """
    from netspec.tools.drawing.draw import draw as draw_net
    from netspec.tools.drawing.draw import mermaid

    if output is not None:
        writable(output, "--output")
    diagram = draw_net(
        spec, output=output, overrides=overrides or (), expand=expand, shapes=shapes, parameters=parameters, time=time,
        device=device,
    )  # fmt: skip
    if as_json:
        print_json(diagram.as_json())
    elif output is None:
        print(f"```mermaid\n{mermaid(diagram)}```")
    else:
        print(f"{output}: {len(diagram.boxes)} boxes")
