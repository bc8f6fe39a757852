"""`netspec zoo`: the models that netspec ships; list them, look at one, copy one to change it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

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
    """List the models."""
    from netspec.tools.zoo import models

    found = [_facts(one.folder) for one in models()]
    if as_json:
        print_json(found)
        return
    rows = [[one["name"], ", ".join(one["files"]), one["description"]] for one in found]
    table(["model", "files", "what it is"], rows)


@app.command("show", cls=Plain, epilog=examples("netspec zoo show lenet_mnist"))
def show(name: Name, as_json: Json = False) -> None:
    """Show a model: its card, its files and its layers."""
    from netspec.tools.plan import costs
    from netspec.tools.specs import read_net
    from netspec.tools.zoo import model

    found = model(name)
    facts = _facts(found.folder)
    net, dtype = read_net(found.folder / facts["files"][0])
    cost = costs(net, 1, dtype=dtype)
    if as_json:
        print_json({**facts, "parameters": cost.parameters, "flops": cost.flops})
        return
    card = found.card()
    print(card if card is not None else f"{name}\n\n{facts['description']}")
    print(f"\nparameters: {count(cost.parameters)}")
    print(f"folder: {found.folder}")
    for file in found.files():
        print(f"  {file.relative_to(found.folder)}  {size(file.stat().st_size)}")


@app.command("copy", cls=Plain, epilog=examples("netspec zoo copy lenet_mnist my_lenet"))
def copy(
    name: Name,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Create this folder; it must be new or empty.")],
) -> None:
    """Copy a model into a folder of one's own, to change it."""
    from netspec.tools.zoo import copy_model, model

    found = model(name)
    target = Path(folder)
    copy_model(found, target)
    print(f"{name} is in {target}")
    specs = [target / file for file in _facts(found.folder)["files"]]
    print("\nnext:\n  " + command("check", *specs))
    if (target / "train.yaml").exists():
        print("  " + command("train", target / "train.yaml"))


def _facts(folder: Path) -> dict[str, Any]:
    from netspec.schema.yaml.reader import read_yaml
    from netspec.tools.zoo import SPECS

    files = [name for name in SPECS if (folder / name).is_file()]
    described = next((text for name in files if (text := read_yaml(folder / name).get("description"))), "")
    return {"name": folder.name, "files": files, "description": described, "folder": str(folder)}
