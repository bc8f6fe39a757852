"""Stages of convolutions, for nets that read images and spectrograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.tools.init.files import NORMALIZATION, comment, items
from netspec.tools.init.search_space import SearchSpace

POOLING = {"type": "MaxPooling2D", "pool_size": 2}
COUNTS = ("no", "one", "two", "three")
IS_RESIDUAL = "${block == 'residual'}"


def convolution_stages(widths: Sequence[int], halvings: int, depth: int, space: SearchSpace) -> list[str]:
    """Return `layers`, and `blocks` if they are searched, up to the last of the stages with these widths.

    A stage has `depth` convolutions. The first `halvings` stages end with half the resolution.
    """
    if space.searched:
        return _searched_stages(widths, halvings, depth, space)
    lines = ["layers:"]
    for number, filters in enumerate(widths):
        convolutions = f"{COUNTS[depth]} convolution{'s' * (depth > 1)} of {filters} channels"
        why = f"stage {number + 1}: {convolutions}" + ", then half the resolution" * (number < halvings)
        pooling = [(POOLING, "")] * (number < halvings)
        lines += [*comment(why, 2), *items([*_convolution(filters) * depth, *pooling], 2)]
    return lines


def _searched_stages(widths: Sequence[int], halvings: int, depth: int, space: SearchSpace) -> list[str]:
    """Return the same stages with variables for width and depth, and with a shortcut around each as an option."""
    filters = space.scaled_widths(widths, "channels of the first stage")
    repeat = space.net_variable("depth", depth, {"low": 1, "high": 3}, "convolutions in a stage")
    space.net_variable(
        "block", "plain", {"choices": ["plain", "residual"]}, "`residual` adds the input of a stage to its output"
    )
    shortcut = {"type": "Conv2D", "from": "x", "filters": "${filters}", "kernel_size": 1, "use_bias": False}
    lines = [
        "blocks:",
        "  stage:",
        "    params: {filters}",
        "    inputs: [x]",
        "    layers:",
        "      - name: convolutions",
        f'        repeat: "{repeat}"',
        "        layers:",
        *items(_convolution("${filters}"), 10),
        *items([({"name": "shortcut", **shortcut, "if": IS_RESIDUAL}, "")], 6),
        *items([({"type": "Add", "from": ["convolutions", "shortcut"], "if": IS_RESIDUAL}, "")], 6),
        "layers:",
    ]
    for number, expression in enumerate(filters):
        stage = {"name": f"stage{number + 1}", "type": "stage", "filters": expression}
        lines += items([(stage, ""), *[(POOLING, "half the resolution")] * (number < halvings)], 2)
    return lines


def _convolution(filters: int | str) -> list[tuple[dict[str, Any], str]]:
    """Return a convolution with normalization and activation."""
    conv = {"type": "Conv2D", "filters": filters, "kernel_size": 3, "padding": "same", "use_bias": False}
    return [(conv, ""), (NORMALIZATION, ""), ({"type": "ReLU"}, "")]
