"""`netspec import`: a net and its weights from a file of another program, or from one of netspec's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.output import count
from netspec.cli.shapes import Shapes, Values, shapes_of, values_of
from netspec.errors import InputError, Problem, command

if TYPE_CHECKING:
    from netspec.exchange.imported import Imported, ImportOptions
    from netspec.train.model import Model

app = command_app()


@app.command(
    cls=Plain,
    epilog=examples(
        "netspec import model.onnx --output my_net",
        "netspec import model.onnx --output my_net --shape data=3,224,224",
        "netspec import speech.onnx --output my_net --shape length=512 --value rate=16000",
        "netspec import runs/lenet_mnist/best.h5 --output my_net",
        "netspec import runs/lenet_mnist/checkpoints/step-00001000.h5 --output my_net",
        "netspec import other.h5 --net net.yaml --output my_net",
        "netspec import deploy.prototxt --weights net.caffemodel --output my_net",
        "netspec import model.keras --output my_net --fold-batch-norm",
    ),
)
def import_file(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A model, weights or a checkpoint: its content says what it is.", show_default=False
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", metavar="FOLDER", help="A new folder for the files.", show_default=False),
    ],
    net: Annotated[
        str | None,
        typer.Option("--net", metavar="SPEC", help="The net that weights are for, where FILE does not say it."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FILE", help="The weights, where they are not in FILE."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="With --net: what arrays of FILE are called in the net; * stands for any characters.",
        ),
    ] = None,
    shapes: Shapes = None,
    values: Values = None,
    phase: Annotated[
        str,
        typer.Option(
            "--phase", metavar="train|test", help="Of a net of Caffe's only this form; default: both, as one net."
        ),
    ] = "",
    stages: Annotated[
        list[str] | None,
        typer.Option("--stage", metavar="NAME", help="A stage that layers of Caffe's ask for; may be given again."),
    ] = None,
    level: Annotated[int, typer.Option("--level", metavar="N", help="The level that layers of Caffe's ask for.")] = 0,
    fold_batch_norm: Annotated[
        bool,
        typer.Option(
            "--fold-batch-norm",
            help="Make BatchNormalization part of the convolution or Dense before it: for a net that is only used.",
        ),
    ] = False,
) -> None:
    """Read a net and its weights from a file of any format.

    They are written as net.yaml and weights.h5 in a new folder, with train.yaml where the file says how the net is
    trained. Where something has no counterpart here, all of it is listed, and nothing is written.
    """
    given, rules = shapes_of(shapes), _names(names or [])
    from netspec.cli.folders import new_folder
    from netspec.exchange.imported import ImportOptions

    source, target = Path(file), Path(output)
    if phase not in ("", "train", "test"):
        raise InputError(f"there is no phase `{phase}`", expected="--phase train, or --phase test")
    given_weights = Path(weights) if weights else None
    options = ImportOptions(given, given_weights, phase, level, tuple(stages or ()), values_of(values))
    with new_folder(target) as staged:
        found = _read(source, net, rules, options)
        if fold_batch_norm:
            from netspec.cli.folding import folded

            found = folded(found, source)
        model = _write(staged, found, source.stem)
    for note in found.notes:
        print(f"note: {note}")
    parameters = sum(model.parameters[name].size for name in model.compiler.names("parameter"))
    print(f"{target}: {count(len(model.spec.layers))} layers, {count(parameters)} parameters")
    weighed = ["--weights", target / "weights.h5"] if (target / "weights.h5").exists() else []
    if not weighed:
        print("no weights were given: the net is there alone")
    print(f"\nnext:\n  {command('plan', target / 'net.yaml')}")
    if weighed:
        export = [target / "net.yaml", *weighed, "--output", target / "model.onnx"]
        print(f"  {command('export', *export)}")
    if found.train:
        going_on = ["--resume", target / "checkpoint.h5"] if found.slots else []
        trains = command("train", target / "train.yaml", *going_on)
        if _has_data(target / "train.yaml"):
            print(f"  {trains}")
        else:
            print(f"\nonce {target / 'train.yaml'} says its data in the place of `source: python`:\n  {trains}")


def _has_data(path: Path) -> bool:
    """Whether a training's samples come from files, as the command line wants them."""
    from netspec.schema.load import load_train

    return getattr(load_train(path).data.train, "source", "") != "python"


def _read(source: Path, net: str | None, rules: dict[str, str | None], options: ImportOptions) -> Imported:
    """What the file holds; where a net is given, the weights are laid onto that."""
    from netspec.exchange.coverage import match_weights
    from netspec.exchange.imported import Imported, Target, check_given
    from netspec.exchange.importing import import_model, import_weights
    from netspec.exchange.renaming import renamed
    from netspec.schema.provenance import canonical_yaml
    from netspec.train.model import load

    if net is None:
        if rules:
            raise InputError("--map is for weights that are laid onto a net", hint="give the net: --net SPEC")
        return import_model(source, options)
    check_given(options, (), source, "laid onto a net (--net)")
    model = load(net, device="cpu")
    target = Target(model.spec, model.compiler.types("parameter", "statistic"), partial(renamed, rules))
    arrays = import_weights(source, target)
    return Imported(canonical_yaml(model.spec), match_weights(target.states, arrays, source=str(source)).arrays)


def _write(folder: Path, found: Imported, name: str) -> Model:
    """Write what was found, and read it as netspec itself does. Weights that no file had are not written."""
    from netspec.exchange.hdf5 import write_weights
    from netspec.train.model import load

    (folder / "net.yaml").write_text(found.net, encoding="utf-8")
    model = load(folder / "net.yaml", device="cpu")
    if found.arrays or not model.parameters:
        write_weights(folder / "weights.h5", found.arrays, net=found.net, name=name, **found.meta)
        model.load_weights(folder / "weights.h5")
    if found.train:
        from netspec.schema.load import load_spec
        from netspec.schema.provenance import canonical_yaml

        (folder / "train.yaml").write_text(found.train, encoding="utf-8")
        spec = load_spec(folder / "train.yaml")  # it must be what netspec itself reads
        if found.slots:
            _write_checkpoint(folder / "checkpoint.h5", found, model, canonical_yaml(spec))
    return model


def _write_checkpoint(path: Path, found: Imported, model: Model, spec: str) -> None:
    """All states, those of the solver too, for a training that goes on from there."""
    from netspec.exchange.hdf5 import write_checkpoint

    roles = {name: model.compiler.info[name].role for name in found.arrays} | dict.fromkeys(found.slots, "slot")
    write_checkpoint(path, {**found.arrays, **found.slots}, roles, {"step": found.step, **found.meta}, spec)


def _names(given: list[str]) -> dict[str, str | None]:
    """The new names given as `old=new`; an empty one leaves an array out. Raises `InputError` as `shapes_of`."""
    found: dict[str, str | None] = {}
    problems: list[Problem] = []
    for text in given:
        old, sign, new = text.partition("=")
        if not old or not sign or new.count("*") > old.count("*"):
            problems.append(Problem(f"`{text}` is no new name", expected="--map OLD=NEW, with no more * in NEW"))
        else:
            found[old] = new or None
    if problems:
        raise InputError(problems)
    return found
