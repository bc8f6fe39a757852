"""Nets of which parameters are divided among workers: which they are, and what a worker computes of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from netspec.compile.build import Built
from netspec.graph.graph import Graph
from netspec.graph.ops.exchange import Parts, Product
from netspec.layers.base import LayerSpec
from netspec.layers.states import Piece
from netspec.passes.cut import Cut, CutProducts, products
from netspec.schema.links import resolve_names
from netspec.schema.net import NetSpec

Choice = Callable[[Sequence[Product]], Mapping[str, int]]
"""From the products with parameters that can be divided to the axes along which they are, by the parameters' names."""


@dataclass(frozen=True)
class Cutting:
    """Who divides parameters, and which."""

    rank: int
    workers: int
    samples: int
    """Of a batch, of all workers together."""
    choose: Choice

    def whole(self, size: int) -> int:
        """How many samples all workers have together where this one has `size`, as far as nobody says so."""
        return self.samples if abs(self.samples / self.workers - size) < 1 else size * self.workers

    def cuts(self, spec: NetSpec, built: Built) -> dict[str, Cut]:
        """How the parameters are cut that are to be."""
        found = divisible(spec, built)
        shapes = {one.kernel: (one.inputs, one.units) for one in found}
        return {
            name: Cut(axis, Parts.even(shapes[name][axis], self.workers, self.rank))
            for name, axis in self.choose(found).items()
        }

    def divided(self, built: Built, cuts: Mapping[str, Cut], size: int, whole: int) -> Built:
        """The losses and new states of a batch of `whole` samples, of which this worker has `size`."""
        rows = Parts.even(whole, self.workers, self.rank)
        graph = CutProducts(cuts, rows, size).run(_graph(built))
        states = dict(built.builder.states)
        for name, value in graph.states().items():
            if name in cuts:
                cut, shape = cuts[name], states[name].value.shape
                piece = Piece(shape, cut.axis, cut.parts.cuts, self.rank)
                states[name] = replace(states[name], value=value, piece=piece)
        builder = replace(built.builder, states=states, updates=graph.updates)
        return replace(built, builder=builder, losses=graph.outputs)


def divisible(spec: NetSpec, built: Built) -> list[Product]:
    """The products with parameters that could be cut, in the order of the net."""
    return products(_graph(built), _kernels(spec, built))


def _graph(built: Built) -> Graph:
    return Graph(built.losses, built.builder.updates)


def _kernels(spec: NetSpec, built: Built) -> dict[str, str]:
    """The layers whose parameters can be divided, by their names: those that are trained, and that no layer changes."""
    found = dict[str, str]()
    for link in resolve_names(spec).layers:
        layer = link.fields
        assert isinstance(layer, LayerSpec)
        name = f"{layer.share or link.name}/{layer.divides}"
        info = built.builder.states.get(name)
        if layer.divides is not None and info is not None and info.trainable and name not in built.builder.updates:
            found.setdefault(name, layer.share or link.name)
    return found
