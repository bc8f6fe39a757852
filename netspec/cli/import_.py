"""`netspec import`: read a net and its weights from a model file of any format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Json, Shapes, Values, shapes_of, values_of
from netspec.cli.output import count, print_json
from netspec.errors import InputError, Problem, command

if TYPE_CHECKING:
    from netspec.tools.import_model import ImportResult

app = CommandApp()
Renames: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="OLD=NEW", help="Rename arrays of MODEL to those of NET; repeatable."),
]
Stages: TypeAlias = Annotated[
    list[str] | None, typer.Option("--stage", metavar="NAME", help="Include Caffe layers of this stage; repeatable.")
]
Until: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--until", metavar="TENSOR", help="Cut the net after this layer or tensor; repeatable."),
]
DropHead: TypeAlias = Annotated[
    int, typer.Option("--drop-head", metavar="N", help="Drop the last N layers with parameters.", show_default=False)
]


@app.add_command(
    "netspec import model.onnx --output my_net",
    "netspec import model.onnx --output my_net --shape data=3,224,224",
    "netspec import other.h5 --net net.yaml --output my_net",
    "netspec import deploy.prototxt --weights net.caffemodel --output my_net",
    "netspec import runs/lenet_mnist --output features --drop-head 1",
)
def import_file(
    file: Annotated[
        str, typer.Argument(metavar="MODEL", help="Read a net, training, model or weights file, run or zoo model.")
    ],
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="Create this folder.")],
    net: Annotated[
        str | None, typer.Option("--net", metavar="NET", help="Load the weights in MODEL into this net.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="FILE", help="Load weights [default: those of MODEL].")
    ] = None,
    names: Renames = None,
    shapes: Shapes = None,
    values: Values = None,
    phase: Annotated[
        str, typer.Option("--phase", metavar="train|test", help="Read one phase of a Caffe net [default: both].")
    ] = "",
    stages: Stages = None,
    level: Annotated[int, typer.Option("--level", metavar="N", help="Include Caffe layers of this level.")] = 0,
    until: Until = None,
    drop_head: DropHead = 0,
    fold_batch_norm: Annotated[
        bool, typer.Option("--fold-batch-norm", help="Fold BatchNormalization into the layer before it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import ONNX, Keras or Caffe models, or PyTorch weights.

    Writes net.yaml and weights.h5, and train.yaml if the file describes the training too. The content of the file
    determines the format. If parts of it have no counterpart in netspec, they are all listed and nothing is written.

    A file that contains only weights, such as a .safetensors file from PyTorch, needs --net with a net or training
    file. In --map, * matches any characters. .pt and .pth files are not read; the error says how to convert them.

    --fold-batch-norm makes an inference-only net.

    --until and --drop-head keep a part of the net, to fine-tune it or to compute features. The remaining layers keep
    their weights. Losses and metrics that depend on dropped layers are dropped too.
    """
    given_shapes, given_values, renamed = shapes_of(shapes), values_of(values), _names(names or [])
    from netspec.tools.import_model import import_model

    result = import_model(
        file, output, net=net, weights=weights, names=renamed, shapes=given_shapes, values=given_values, phase=phase,
        stages=stages or (), level=level, until=until or (), drop_head=drop_head, fold_batch_norm=fold_batch_norm,
    )  # fmt: skip
    if as_json:
        print_json({
            "path": str(result.folder), "files": [str(path) for path in result.files], "layers": result.layers,
            "parameters": result.parameters, "notes": list(result.notes),
        })  # fmt: skip
    else:
        _print(result)
        if drop_head and result.weights is not None:
            print(f"\nto fine-tune it on images:\n  {command('init', 'FOLDER', '--trunk', result.folder)}")


def _print(result: ImportResult) -> None:
    """Print a line for each kind of note, the counts, and the commands that come next."""
    from netspec.exchange.notes import summarized

    for note in summarized(result.notes):
        print(f"note: {note}")
    print(f"{result.folder}: {count(result.layers)} layers, {count(result.parameters)} parameters")
    if result.weights is None:
        print("the net has no weights: the model has none, and --weights is not given")
    print(f"\nnext:\n  {command('plan', result.net)}")
    if result.weights is not None:
        model = result.folder / "model.onnx"
        print(f"  {command('export', result.net, '--weights', result.weights, '--output', model)}")
    if result.train is not None:
        resumed = ["--resume", result.checkpoint] if result.checkpoint is not None else []
        if result.needs_data:
            print(f"\nafter replacing `source: python` in {result.train} with your data:")
        print(f"  {command('train', result.train, *resumed)}")


def _names(renames: list[str]) -> dict[str, str | None]:
    """Parse renames `old=new`; an empty `new` drops an array. Raises `InputError` that lists all invalid ones."""
    names: dict[str, str | None] = {}
    problems: list[Problem] = []
    for text in renames:
        old, sign, new = text.partition("=")
        if not old or not sign or new.count("*") > old.count("*"):
            problems.append(Problem(f"`{text}` is not a renaming", expected="--map OLD=NEW, with no more * in NEW"))
        else:
            names[old] = new or None
    if problems:
        raise InputError(problems)
    return names
