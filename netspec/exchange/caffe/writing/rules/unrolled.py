"""Recurrent layers that Caffe's are not, step by step: products that share their weights, gates, and sums of them.

A sequence stays (N, T, features) then, and a step of it (N, 1, features).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from netspec.exchange.caffe.writing import functions
from netspec.exchange.caffe.writing.rules.shapes import cut, resized, silenced
from netspec.exchange.caffe.writing.writer import Blob, Layer, NoForm, Writer, writes
from netspec.layers.recurrent_cells import cell_names
from netspec.layers.wrappers import called

if TYPE_CHECKING:
    from netspec.exchange.caffe.writing.writer import Array

MOST_STEPS = 200
"""Steps that are written one by one: each is a dozen of layers."""


@dataclass
class Cell:
    """A cell that runs along a sequence."""

    w: Writer
    link: Layer
    fields: Any
    states: str
    """What stands before the names of its parameters."""
    name: str
    """What stands before the names of the layers that it becomes."""

    def parameter(self, name: str) -> Array:
        """One of its arrays."""
        return self.w.arrays[f"{self.states}/{name}"]

    def product(self, name: str, bottom: str, *arrays: tuple[str, Array]) -> str:
        """(N, t, in) → (N, t, out): a matrix (in, out), and a bias, each with the name by which steps share it."""
        matrix, *bias = arrays
        blobs = [Blob(matrix[1].T, f"{self.states}/{matrix[0]}")]
        blobs += [Blob(array, f"{self.states}/{called}") for called, array in bias]
        self.w.sharing |= {self.states}
        param = {"num_output": matrix[1].shape[1], "bias_term": bool(bias), "axis": 2}
        self.w.layer(
            name, "InnerProduct", [bottom], [name], *blobs, of=self.link, params={"inner_product_param": param}
        )
        return name

    def parts(self, name: str, bottom: str, count: int) -> list[str]:
        """Equal parts along the features."""
        tops = [f"{name}_{number}" for number in range(count)]
        cut(self.w, name, bottom, 2, [self.fields.units] * count, tops)
        return tops

    def function(self, name: str, function: Any, bottom: str) -> str:
        """An activation; the blob itself where there is none."""
        chain = [] if function is None else functions.steps(function, 3, -1)
        if chain:
            functions.run(self.w, name, name, bottom, chain)
        return name if chain else bottom

    def joined(self, name: str, operation: str, *bottoms: str, by: Sequence[float] | None = None) -> str:
        """The sum, or the product, of blobs."""
        param = {"operation": operation, "coeff": by}
        self.w.layer(name, "Eltwise", bottoms, [name], params={"eltwise_param": param})
        return name

    def bias(self) -> list[Array]:
        """That of the input, and where it has one of its own that of the state."""
        return list(np.atleast_2d(self.parameter("bias"))) if self.fields.use_bias else []


Step: TypeAlias = "Callable[[Cell, str, str, list[str]], list[str]]"
"""The states behind a step, by the name of the step, what the input gives to it, and the states before."""


def _simple(cell: Cell, name: str, x: str, states: list[str]) -> list[str]:
    """h = f(x + U·h)"""
    product = cell.product(f"{name}_product", states[0], ("recurrent_kernel", cell.parameter("recurrent_kernel")))
    return [cell.function(f"{name}_h", cell.fields.activation, cell.joined(f"{name}_sum", "SUM", x, product))]


def _lstm(cell: Cell, name: str, x: str, states: list[str]) -> list[str]:
    """c = σ(f)·c + σ(i)·tanh(g) and h = σ(o)·tanh(c)"""
    h, c = states
    product = cell.product(f"{name}_product", h, ("recurrent_kernel", cell.parameter("recurrent_kernel")))
    i, f, g, o = cell.parts(f"{name}_gates", cell.joined(f"{name}_sum", "SUM", x, product), 4)
    i, f, o = (cell.function(f"{one}_open", cell.fields.recurrent_activation, one) for one in (i, f, o))
    g = cell.function(f"{name}_new", cell.fields.activation, g)
    kept, new = cell.joined(f"{name}_kept", "PROD", f, c), cell.joined(f"{name}_added", "PROD", i, g)
    c = cell.joined(f"{name}_c", "SUM", kept, new)
    return [cell.joined(f"{name}_h", "PROD", o, cell.function(f"{name}_shown", cell.fields.activation, c)), c]


def _gru(cell: Cell, name: str, x: str, states: list[str]) -> list[str]:
    """h = g + z·(h - g), where r is applied behind the recurrent product, or before it."""
    (h,), units, kernel = states, cell.fields.units, cell.parameter("recurrent_kernel")
    z, r, g = cell.parts(f"{name}_input", x, 3)
    if cell.fields.reset_after:
        bias = [("recurrent_bias", one) for one in cell.bias()[1:]]
        product = cell.product(f"{name}_product", h, ("recurrent_kernel", kernel), *bias)
        own = cell.parts(f"{name}_state", product, 3)
    else:
        gates = ("recurrent_kernel_gates", kernel[:, : 2 * units])
        own = cell.parts(f"{name}_state", cell.product(f"{name}_product", h, gates), 2)
    z, r = (
        cell.function(f"{name}_{which}", cell.fields.recurrent_activation,
                      cell.joined(f"{name}_{which}_sum", "SUM", given, of_state))
        for which, given, of_state in zip("zr", (z, r), own, strict=False)
    )  # fmt: skip
    if cell.fields.reset_after:
        seen = cell.joined(f"{name}_seen", "PROD", r, own[2])
    else:
        candidate = ("recurrent_kernel_candidate", kernel[:, 2 * units :])
        seen = cell.product(f"{name}_candidate", cell.joined(f"{name}_seen", "PROD", r, h), candidate)
    g = cell.function(f"{name}_g", cell.fields.activation, cell.joined(f"{name}_g_sum", "SUM", g, seen))
    change = cell.joined(f"{name}_change", "SUM", h, g, by=(1.0, -1.0))
    return [cell.joined(f"{name}_h", "SUM", g, cell.joined(f"{name}_kept", "PROD", z, change))]


_STEPS: dict[str, tuple[Step, int, int]] = {"SimpleRNN": (_simple, 1, 1), "LSTM": (_lstm, 2, 4), "GRU": (_gru, 1, 3)}
"""By type: how a step is written, how many states there are, and how many parts the input's product has."""


@dataclass
class Run:
    """What a layer gives: the sequence of its outputs, in the order of reading, and its states in the end."""

    outputs: list[str]
    states: list[str]


def _cells(w: Writer, link: Layer, fields: Any, states: str, name: str) -> Iterator[Cell]:
    """The cells of a layer, each of which reads what the one before gives."""
    if fields.type != "RNN":
        yield Cell(w, link, fields, states, name)
        return
    several = getattr(fields.cell, "cells", None)
    (outer,) = cell_names([fields.cell])
    if several is None:
        yield Cell(w, link, fields.cell, f"{states}/{outer}", f"{name}_{outer}")
        return
    for one, inner in zip(several, cell_names(several), strict=True):
        yield Cell(w, link, one, f"{states}/{outer}/{inner}", f"{name}_{inner}")


def _run(w: Writer, link: Layer, fields: Any, states: str, name: str, first: Sequence[str]) -> Run:
    """A layer, or one way of a Bidirectional, over the sequence that `link` reads."""
    source, given, last = link.sources[0], [w.blob(one) for one in first], list[str]()
    count, sequence, backwards = w.shape(source)[1], w.blob(source), fields.go_backwards
    if count > MOST_STEPS:
        raise NoForm(f"step by step its {count} steps are more than the {MOST_STEPS} that are written")
    outputs: list[str] = []
    for number, cell in enumerate(_cells(w, link, fields, states, name)):
        step, kept, gates = _STEPS[cell.fields.type.removesuffix("Cell")]
        if number:
            sequence, backwards = _sequence(w, f"{cell.name}_sequence", outputs), False
        bias = [("bias_of_input", one) for one in cell.bias()[:1]]
        product = cell.product(f"{cell.name}_input", sequence, ("kernel", cell.parameter("kernel")), *bias)
        at = [f"{cell.name}_input_{place}" for place in range(count)]
        cut(w, f"{cell.name}_inputs", product, 1, [1] * count, at)
        before = _beginning(cell, [given.pop(0) for _ in range(kept)]) if given else [_zeros(cell, at[0], gates)] * kept
        outputs = []
        for place in reversed(range(count)) if backwards else range(count):
            before = step(cell, f"{cell.name}_{place}", at[place], before)
            outputs.append(before[0])
        last += before
    return Run(outputs, last)


def _beginning(cell: Cell, given: Sequence[str]) -> list[str]:
    """States (N, units) as those of a step."""
    names = [f"{cell.name}_first_{number}" for number in range(len(given))]
    for name, blob in zip(names, given, strict=True):
        resized(cell.w, name, blob, name, (1, 1, cell.fields.units))
    return names


def _zeros(cell: Cell, x: str, gates: int) -> str:
    """Zeros for a first state, made of a step's input."""
    first, *rest = cell.parts(f"{cell.name}_some", x, gates)
    functions.run(cell.w, f"{cell.name}_zeros", f"{cell.name}_zeros", first, [functions.power(0.0)])
    silenced(cell.w, f"{cell.name}_some_rest", rest)
    return f"{cell.name}_zeros"


def _sequence(w: Writer, name: str, steps: Sequence[str]) -> str:
    """Steps (N, 1, units) as a sequence."""
    if len(steps) == 1:
        w.layer(name, "Split", steps, [name])
    else:
        w.layer(name, "Concat", steps, [name], params={"concat_param": {"axis": 1}})
    return name


def _finished(w: Writer, link: Layer, made: Sequence[tuple[str, str]]) -> None:
    """Outputs under the layer's names, from blobs: states and last outputs without the axis of steps."""
    names = link.outputs if len(made) > 1 else (link.name,)
    w.blobs |= {link.name: names[0]}
    for name, (blob, what) in zip(names, made, strict=True):
        if what == "sequence":
            w.layer(name, "Split", [blob], [name])
        else:
            resized(w, name, blob, name, w.shape(name))
    read = {w.blob(name) for name in w.readers}
    silenced(w, f"{link.name}_rest", [name for name in names if name not in read])


def _output(w: Writer, fields: Any, run: Run, name: str, *, turned: bool = False) -> tuple[str, str]:
    """The sequence of the outputs, or the last one; `turned` for the order of the steps, not that of reading."""
    if not fields.return_sequences:
        return run.outputs[-1], "state"
    return _sequence(w, f"{name}_sequence", run.outputs[::-1] if turned else run.outputs), "sequence"


def unrolled(w: Writer, link: Layer) -> None:
    """A recurrent layer step by step."""
    _only_deployed(w)
    fields = link.fields
    run = _run(w, link, fields, fields.share or link.name, link.name, link.sources[1:])
    states = [(one, "state") for one in run.states] if fields.return_state else []
    _finished(w, link, [_output(w, fields, run, link.name), *states])


writes("GRU", "RNN")(unrolled)


@writes("Bidirectional")
def bidirectional(w: Writer, link: Layer) -> None:
    """Both ways, and both outputs behind one another, or joined."""
    _only_deployed(w)
    fields, own = link.fields, link.fields.share or link.name
    first = fields.layer
    second = fields.backward_layer or first.model_copy(update={"go_backwards": True})
    count = len(first.state_names())
    given = link.sources[1:]
    made, states = [], []
    for way, layer, before in (("forward", first, given[:count]), ("backward", second, given[count:])):
        run = _run(w, link, layer, f"{own}/{way}_{called(layer)}", f"{link.name}_{way}", before)
        made.append(_output(w, layer, run, f"{link.name}_{way}", turned=way == "backward"))
        states += [(one, "state") for one in run.states] if layer.return_state else []
    if fields.merge_mode is None:
        _finished(w, link, [*made, *states])
        return
    blobs, merged = [blob for blob, _ in made], f"{link.name}_merged"
    if fields.merge_mode == "concat":
        w.layer(merged, "Concat", blobs, [merged], params={"concat_param": {"axis": 2}})
    else:
        param: dict[str, Any] = {"operation": "PROD" if fields.merge_mode == "mul" else "SUM"}
        param |= {"coeff": [0.5, 0.5]} if fields.merge_mode == "ave" else {}
        w.layer(merged, "Eltwise", blobs, [merged], params={"eltwise_param": param})
    _finished(w, link, [(merged, made[0][1]), *states])


def _only_deployed(w: Writer) -> None:
    if w.training:
        raise NoForm("step by step it has no form for training: LSTM, and SimpleRNN with a Dense behind it, have")
