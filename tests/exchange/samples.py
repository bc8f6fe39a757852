"""Every sample of every layer as a separate net with inputs, for the round trips of all formats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np

from netspec.tools.verification.cases import SampleCase
from tests.exchange.nets import Arrays, Net, net_data

Ranges: TypeAlias = Sequence[tuple[float, float] | None]


def one_layer(case: SampleCase) -> Net:
    """Return a net of the layer, followed by an Activation, so that the output is always computed."""
    inputs = {
        f"x{index}": {"shape": list(shape[1:]), "dtype": dtype}
        for index, (shape, dtype) in enumerate(zip(case.sample.shapes, case.sample.dtypes, strict=True))
    }
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in case.fields.items()}
    end = {"name": "end", "type": "Activation", "activation": "tanh"}
    return Net.of(net_data({**fields, "name": "sample", "from": list(inputs)}, end, inputs=inputs))


def inputs_of(net: Net, ranges: Ranges = (), size: int = 3) -> Arrays:
    """Return random values for each input, within its range if there is one."""
    random, results = np.random.default_rng(3), {}
    for name, input, bounds in zip_longest(net.spec.inputs, net.spec.inputs.values(), ranges):
        shape = (size, *input.shape)
        if input.dtype != "float32":
            array: Any = random.integers(0, 2, shape)
        elif bounds:
            array = random.uniform(bounds[0], bounds[1], shape)
        else:
            array = random.normal(size=shape)
        results[name] = array.astype(input.dtype)
    return results
