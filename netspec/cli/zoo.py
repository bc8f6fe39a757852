"""`netspec zoo`: list, show and copy the models that netspec ships."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from netspec.cli.app import Plain, command_app, examples
from netspec.cli.options import Json
from netspec.cli.output import count, print_json, size, table
from netspec.errors import command

app = command_app("List, show and copy the models that netspec ships.")
app.info.epilog = examples("netspec zoo list", "netspec zoo copy lenet_mnist my_lenet")

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Select a model that `netspec zoo list` lists.")]


@app.command("list", cls=Plain, epilog=examples("netspec zoo list", "netspec zoo list --json"))
def list_(as_json: Json = False) -> None:
    """List the models that netspec ships."""
    from netspec.tools.zoo import zoo

    models = zoo()
    if as_json:
        print_json([model.as_json() for model in models])
        return
    rows = [[model.name, "trained" if model.weights else "", model.description] for model in models]
    table(["model", "weights", "description"], rows)


@app.command("show", cls=Plain, epilog=examples("netspec zoo show lenet_mnist"))
def show(name: Name, as_json: Json = False) -> None:
    """Show the card, the files and the size of a model."""
    from netspec.tools.plan import plan
    from netspec.tools.zoo import zoo_model

    model = zoo_model(name)
    costs = plan(model.specs[0], batch_size=1).costs
    if as_json:
        print_json({**model.as_json(), "parameters": costs.parameters, "flops": costs.flops})
        return
    print(model.card() or f"{name}\n\n{model.description}")
    print(f"\nparameters: {count(costs.parameters)}")
    print(f"folder: {model.folder}")
    for file in model.files():
        print(f"  {file.relative_to(model.folder)}  {size(file.stat().st_size)}")


@app.command("copy", cls=Plain, epilog=examples("netspec zoo copy lenet_mnist my_lenet"))
def copy(
    name: Name,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Create this folder; it must be new or empty.")],
) -> None:
    """Copy a model to a new folder, to train or change it."""
    from netspec.tools.zoo import zoo_model

    model, target = zoo_model(name), Path(folder)
    model.copy(target)
    print(f"{name} is in {target}")
    specs = [target / path.name for path in model.specs]
    print("\nnext:\n  " + command("check", *specs))
    if (target / "train.yaml").exists():
        print("  " + command("train", target / "train.yaml"))
