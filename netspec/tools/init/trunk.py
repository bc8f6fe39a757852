"""A trained model without its head, on which `netspec init --trunk` builds a net for images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from netspec.compile import ProgramKind
from netspec.errors import InputError, listing
from netspec.exchange.files import staging
from netspec.schema.bundled import model_path, near_model
from netspec.tools.import_model import NET, WEIGHTS, import_model
from netspec.tools.init.files import TRUNK_FILES, relative
from netspec.tools.model_inputs import load, open_any

Step = dict[str, Any]

CHANNELS = (1, 3)
LARGE = 160
"""A trunk for color images of at least this side was probably trained on ImageNet, if nothing else is recorded."""
SCALING: tuple[Step, ...] = ({"type": "Rescaling", "scale": 1 / 255},)
IMAGENET: tuple[Step, ...] = (
    {"type": "Normalization", "mean": [123.675, 116.28, 103.53], "variance": [3409.976, 3262.694, 3291.891]},
)
"""Mean and variance of ImageNet's pixels, as torchvision uses them, for pixels of 0 to 255."""
POINTWISE = ("Rescaling", "Normalization", "ReverseChannels")
"""Transforms of the trunk's training that are applied again; `netspec init` chooses those that move pixels."""


@dataclass(frozen=True)
class Trunk:
    """A trained net without its head: its files, and the properties of its input and output."""

    name: str
    """The model, as the user named it."""
    net: Path
    weights: Path
    size: tuple[int, int]
    """Height and width of the images that it takes."""
    channels: int
    channels_last: bool
    """Whether its input is (H, W, C)."""
    output: tuple[int, ...]
    """Shape of its output for a sample."""
    layers: int
    preparation: tuple[Step, ...]
    """Transforms between bytes and the input of the trunk."""
    preparation_known: bool
    """Whether its weights record how its images were prepared."""
    dense_outputs_description: str = ""
    """The outputs of the net with its head, if none of them is one vector per image; else empty."""

    def describe_color_conversion(self, *, gray: bool) -> str:
        """Return how gray or color images are made to fit its channels; empty if they fit as they are."""
        if gray == (self.channels == 1):
            return ""
        if gray:
            return "the trunk takes color images, but yours are gray: each is copied to all 3 channels"
        return "the trunk takes gray images, but yours have color, which is dropped"

    def describe_other_task(self) -> str:
        """Return why the features may not tell classes of images apart; empty if the net predicts for whole images."""
        if not self.dense_outputs_description:
            return ""
        return (
            f"the net of the trunk predicts {self.dense_outputs_description}, not one vector per image: it was trained "
            "for a different task, and its features may be of little use for image classification"
        )

    def block(self, folder: Path) -> dict[str, str]:
        """Return the definition of its block in a file in `folder`."""
        return {"net": relative(self.net, folder)}

    def init_from(self, folder: Path) -> dict[str, Any]:
        """Return `init_from` of a training file in `folder`."""
        return {
            "file": relative(self.weights, folder), "map": {"*": "trunk/*"}, "require": ["trunk/*"],
            "freeze": "trunk",
        }  # fmt: skip


def is_imported(path: Path) -> bool:
    """Whether `trunk_in` imports a model to `TRUNK_FILES` first: any but the folder of an import."""
    source = Path(model_path(str(path)))
    return source != path or not (source / NET).is_file()


def trunk_in(path: Path, folder: Path) -> Trunk:
    """Return the trunk in the folder of an import.

    A run, a model file or a model of the zoo is imported without its last layer with parameters first, to `TRUNK_FILES`
    in `folder`. Raises `InputError` if the trunk does not take images, or has several outputs.
    """
    source = Path(model_path(str(path)))
    if not source.exists():
        raise InputError(
            f"no such file or folder: {path}", hint=near_model(path),
            expected="the folder that `netspec import` wrote, a run, a model file, or a model of the zoo",
        )  # fmt: skip
    in_zoo = source != path
    if in_zoo and not (source / WEIGHTS).is_file():
        hint = "`netspec zoo list` shows which models have"
        raise InputError(f"the model `{path}` of the zoo has no trained weights", hint=hint)
    if is_imported(path):
        return _imported(path, source, folder)
    return _described(path, source / NET, source / WEIGHTS)


def _imported(name: Path, source: Path, folder: Path) -> Trunk:
    """Import a model without its head. Nothing is written if it cannot be a trunk."""
    folder.mkdir(parents=True, exist_ok=True)
    with staging(folder / "trunk", name) as staged:
        import_model(source, staged, drop_head=1)
        trunk = _described(name, staged / NET, staged / WEIGHTS)
        net, weights = (folder / file for file in TRUNK_FILES)
        trunk.net.replace(net)
        trunk.weights.replace(weights)
    return replace(trunk, net=net, weights=weights, dense_outputs_description=_dense_outputs_description(source))


def _dense_outputs_description(source: Path) -> str:
    """Return the outputs of a net in which no output is a vector for each image; else nothing."""
    try:
        outputs = open_any(source).model.compiler.graph(ProgramKind.PREDICT, 1).outputs
    except InputError:  # a head that cannot be imported
        return ""
    shapes = {name: value.shape[1:] for name, value in outputs.items()}
    if any(sum(size > 1 for size in shape) < 2 for shape in shapes.values()):
        return ""
    return _listed(shapes)


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return listing([f"`{name}` {list(shape)}" for name, shape in shapes.items()])


def _described(name: Path, net: Path, weights: Path) -> Trunk:
    if not weights.is_file():
        raise InputError(f"{name} has no {WEIGHTS}", expected="a trunk with weights")
    model = load(net, weights, device="cpu")
    graph = model.compiler.graph(ProgramKind.PREDICT, 1)
    inputs, outputs = graph.inputs(), graph.outputs
    shapes = {field: value.shape[1:] for field, value in inputs.items()}
    ((image, shape),) = shapes.items() if len(shapes) == 1 else (("", ()),)
    channels_last = len(shape) == 3 and shape[0] not in CHANNELS and shape[2] in CHANNELS
    channels, height, width = (shape[2], *shape[:2]) if channels_last else shape if len(shape) == 3 else (0, 0, 0)
    if channels not in CHANNELS:
        raise InputError(
            f"{name} does not take images", expected="one input [channels, height, width] with 1 or 3 channels",
            got=_listed(shapes),
        )  # fmt: skip
    if len(outputs) != 1:
        raise InputError(
            f"{name} has {len(outputs)} outputs", expected="one", got=listing(list(outputs)),
            hint="cut the model at one of them: `netspec import MODEL --output DIR --until NAME`",
        )  # fmt: skip
    (output,) = outputs.values()
    recorded = model.preprocessing.transforms
    steps = tuple(_plain(step) for step in recorded or () if step.get("input") in (image, "", None))
    pointwise = tuple(step for step in steps if step["type"] in POINTWISE)
    guessed = IMAGENET if channels == 3 and min(height, width) >= LARGE else SCALING
    return Trunk(
        str(name), net, weights, (height, width), channels, channels_last, output.shape[1:], len(model.spec.layers),
        guessed if recorded is None else pointwise, recorded is not None,
    )  # fmt: skip


def _plain(step: Step) -> Step:
    """Return a recorded transform as a training file has it."""
    return {"type": step["type"]} | {key: value for key, value in step.items() if key not in ("input", "type", "adapt")}


def head(trunk: Trunk, classes: int, dropout: Any) -> Sequence[tuple[Step, str]]:
    """Return the layers after the trunk, each with the reason for it. `dropout` is a rate, or an expression."""
    layers: list[tuple[Step, str]] = []
    if len(trunk.output) == 3 and trunk.output[1] * trunk.output[2] > 1:
        layers.append(({"type": "GlobalAveragePooling2D"}, "the mean over all positions"))
    elif len(trunk.output) != 1:
        layers.append(({"type": "Flatten"}, ""))
    layers.append(({"type": "Dropout", "rate": dropout}, "against overfitting"))
    layers.append(({"name": "logits", "type": "Dense", "units": classes}, "one output for each class: the new head"))
    return layers
