"""`netspec zoo`: list, show and copy the models that netspec ships."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from netspec.cli import DONE, FAILED
from netspec.cli.app import CommandApp
from netspec.cli.options import Json, Overrides
from netspec.cli.output import count, print_json, scaled, size, table
from netspec.errors import command, counted

if TYPE_CHECKING:
    from netspec.tools.zoo import ZooModel

app = CommandApp(
    "List, show, copy and verify the models that netspec ships.",
    "netspec zoo list",
    "netspec zoo copy lenet_mnist my_lenet",
)

Model: TypeAlias = Annotated[str, typer.Argument(metavar="MODEL", help="Select a zoo model, or a folder with a copy.")]
Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="Select a zoo model.")]


@app.add_command("netspec zoo list", "netspec zoo list --json", name="list")
def list_(as_json: Json = False) -> None:
    """List the models: tasks, sizes, results and minimum times.

    The minimum time is a lower bound for one sample on this machine's CPU: the FLOPs of the model, divided by the rate
    of a large matrix product, which is measured now. `netspec time NAME` measures the model itself. `weights` is the
    size of the trained weights.
    """
    from netspec.tools.zoo import measured_flops_per_second, zoo

    models = zoo()
    if as_json:
        print_json([model.as_json() for model in models])
        return
    rate = measured_flops_per_second()
    rows = [
        [model.name, model.card.task, scaled(model.card.parameters.count, ""), _main_result(model),
         _duration(model.card.flops.count / rate), size(model.weights.stat().st_size) if model.weights else ""]
        for model in models
    ]  # fmt: skip
    table(["model", "task", "parameters", "measured result", "minimum time", "weights"], rows, right=(2, 4, 5))
    print("\nnext:\n  " + command("zoo", "show", "lenet_mnist"))


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _main_result(model: ZooModel) -> str:
    result = next(iter(model.card.results), None)
    return f"{result.metric} {result.value:g}" if result is not None else "not trained"


@app.add_command("netspec zoo show lenet_mnist", name="show")
def show(name: Model, as_json: Json = False) -> None:
    """Show the card, the files and the size of a model."""
    from netspec.schema.bundled import is_in_zoo
    from netspec.tools.zoo import zoo_model_or_copy

    model = zoo_model_or_copy(name)
    if as_json:
        print_json(model.as_json())
        return
    print(model.readme())
    facts = model.card
    print(
        f"\nparameters: {count(facts.parameters.count)}"
        + (f", as {facts.parameters.of}" if facts.parameters.of else "")
    )
    print(f"arithmetic of one sample: {scaled(facts.flops.count, 'FLOP')}")
    print(f"folder: {model.folder}")
    for file in model.files():
        print(f"  {file.relative_to(model.folder)}  {size(file.stat().st_size)}")
    print("\nnext:")
    if is_in_zoo(str(model.net)):
        print("  " + command("zoo", "copy", name, "my_net"))
    print("  " + command("train", name))
    print("  " + command("time", name) + "   # training steps on synthetic inputs, without the data")
    if model.weights is not None:
        writes = model.card.task.startswith(("language model", "sequence to sequence"))
        print(
            "  "
            + (
                command("generate", name, "--prompt") + " TEXT"
                if writes
                else command("predict", name, "--input") + " FILE"
            )
        )


@app.add_command("netspec zoo copy lenet_mnist my_lenet", name="copy")
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


@app.add_command(
    "netspec zoo verify", "netspec zoo verify lenet_mnist", "netspec zoo verify my_lenet --json", name="verify"
)
def verify(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]", help="Check only this zoo model, or a folder with a copy.", show_default=False
        ),
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> int:
    """Check the specs, sizes, weights and results of models.

    Compares parameters, FLOPs, the checksum of the weights and the results with the card of the model. Exports the
    model to ONNX, and compares it with onnxruntime and with netspec's own import of that file. Results are measured if
    netspec ships the weights and the data is on this machine. Nothing is downloaded. `netspec zoo verify MODEL
    vars.folder=PATH` names the folder of the data.

    The exit status is 1 if a check failed.
    """
    from netspec.tools.zoo import zoo, zoo_model_or_copy
    from netspec.tools.zoo_verification import verify_zoo_model

    models = zoo() if name is None else [zoo_model_or_copy(name)]
    checks = []
    for model in models:
        for check in verify_zoo_model(model, overrides or []):
            checks.append(check)
            if not as_json:
                print(
                    f"{check.model}  {check.name}: {check.status}" + (f", {check.detail}" if check.detail else ""),
                    flush=True,
                )
    failed = [check for check in checks if check.status == "failed"]
    if as_json:
        print_json([check.as_json() for check in checks])
    else:
        print(f"\n{counted(len(checks), 'check')} of {counted(len(models), 'model')}, {len(failed)} failed")
    return FAILED if failed else DONE
