"""TensorParallel parallelism: each worker has a part of the dense layers' matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.distributed.cost_model.strategies import NOTHING, ROWS, WHOLE, chosen, uneven
from netspec.distributed.cost_model.workload import Dense
from netspec.distributed.strategies.base import SynchronousStrategy
from netspec.errors import Problem, SpecError, did_you_mean, listing
from netspec.graph.ops.collectives import ParameterMatMul
from netspec.schema.specs.kinds import STRATEGIES

Way = Literal["columns", "rows", "whole"]


@STRATEGIES.register
class TensorParallel(SynchronousStrategy):
    """Each worker holds a part of the dense layers' matrices, and multiplies the full batch by it.

    Everything else, such as convolutions and biases, is data-parallel. If a matrix is split by columns, a worker
    gathers the inputs of the full batch, and the next split layer gathers its outputs; if it is split by rows, a worker
    reads columns of the inputs, which it has if the previous layer is split by columns, and the results of all workers
    are summed. Gradients and solver states of these matrices are never sent. The steps equal those of one worker with
    the full batch, except for the rounding of sums.
    Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997; Coates et al.
    2013, "Deep learning with COTS HPC systems", ICML; rows after columns: Shoeybi et al. 2019, arXiv:1909.08053.
    """

    strategy: Literal["model"] = "model"
    layers: dict[str, Way] = Field(default_factory=dict)
    """how dense layers are had, by their names: by `columns` (units), by `rows` (inputs), or `whole` on each worker;
    the others such that least is sent"""

    foreign_fields: ClassVar = {
        **SynchronousStrategy.foreign_fields,
        "tensor_parallel_size": "how many workers there are is said when they are started: they all have a part",
        "column": "here it is `layers: {NAME: columns}`",
        "row": "here it is `layers: {NAME: rows}`",
    }
    samples: ClassVar = ({}, {"layers": {"fc1": "columns", "logits": "whole"}})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """What is named must be a layer that can be divided."""
        known = {layer.name: layer for layer in training.net.layers}
        can = [name for name, layer in known.items() if getattr(layer, "shardable_parameter", None) is not None]
        for name in self.layers:
            if name not in can:
                there = name in known
                yield Problem(
                    f"`{name}` can't be divided" if there else f"there is no layer `{name}`",
                    self.where("layers", name, key=True), f"layers.{name}",
                    expected=f"a layer with a matrix that samples are multiplied by: {listing(can) if can else 'none'}",
                    got=str(known[name].type) if there else name, hint=None if there else did_you_mean(name, can),
                )  # fmt: skip

    def cuts(self, products: Sequence[ParameterMatMul], samples: int, workers: int) -> Mapping[str, int]:
        """Along which axes parameters are cut, by their names; the others are not.

        Raises `SpecError` where a layer can't be divided as it should, or none is.
        """
        dense = {
            one.layer: Dense(
                one.inputs, one.units, one.positions, follows=before is not None and one.preceding_kernel == before
            )
            for one, before in zip(products, [None, *(each.kernel for each in products)], strict=False)
        }
        problems = [
            Problem(reason, self.where("layers", name), f"parallel.layers.{name}",
                    expected=f"parts of one size on {workers} workers", hint="`whole` leaves it on each of them")
            for name, one in dense.items()
            if (reason := uneven(name, one, self.layers.get(name, WHOLE), workers)) is not None
        ]  # fmt: skip
        if problems:
            raise SpecError(problems)
        ways = chosen(list(dense.items()), samples, workers, self.layers)
        if set(ways.values()) <= {WHOLE}:
            raise SpecError(
                Problem(
                    NOTHING if dense else "there is no Dense layer to divide", self.where("strategy"),
                    "parallel.strategy", expected=f"a net to divide on {workers} workers",
                    hint="use `all_reduce`, or say how by `layers: {NAME: columns}`",
                )
            )  # fmt: skip
        axes = {one.layer: (one.kernel, 0 if ways[one.layer] == ROWS else 1) for one in products}
        return dict(axes[name] for name, way in ways.items() if way != WHOLE)
