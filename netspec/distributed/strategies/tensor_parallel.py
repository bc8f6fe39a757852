"""Tensor parallelism: each worker has a part of the dense layers' matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.distributed.cost_model.strategies import NO_SPLIT, ROWS, WHOLE, choose_splits, uneven_split_reason
from netspec.distributed.cost_model.workload import DenseShape
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
    """Splits of dense layers, by name: `columns` (units), `rows` (inputs), or `whole` on each worker. For other
    layers, the choice that sends the fewest bytes."""

    foreign_fields: ClassVar = {
        **SynchronousStrategy.foreign_fields,
        "tensor_parallel_size": "not needed: a layer is split over all workers",
        "column": "use `layers: {NAME: columns}`",
        "row": "use `layers: {NAME: rows}`",
    }
    samples: ClassVar = ({}, {"layers": {"fc1": "columns", "logits": "whole"}})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield a problem for each name under `layers` that is not a layer with a matrix to split."""
        layers = {layer.name: layer for layer in training.net.layers}
        can = [name for name, layer in layers.items() if getattr(layer, "shardable_parameter", None) is not None]
        for name in self.layers:
            if name not in can:
                exists = name in layers
                yield Problem(
                    f"`{name}` can't be split" if exists else f"there is no layer `{name}`",
                    self.where("layers", name, key=True), f"layers.{name}",
                    expected=f"a layer that multiplies samples by a matrix: {listing(can) if can else 'none'}",
                    got=str(layers[name].type) if exists else name, hint=None if exists else did_you_mean(name, can),
                )  # fmt: skip

    def cuts(self, products: Sequence[ParameterMatMul], samples: int, workers: int) -> Mapping[str, int]:
        """Return the axes along which parameters are split, by their names; other parameters are not split.

        Raises `SpecError` if a layer can't be split as requested, or no layer is split.
        """
        dense = {
            product.layer: DenseShape(
                product.inputs,
                product.units,
                product.positions,
                follows=before is not None and product.preceding_kernel == before,
            )
            for product, before in zip(products, [None, *(product.kernel for product in products)], strict=False)
        }
        problems = [
            Problem(reason, self.where("layers", name), f"parallel.layers.{name}",
                    expected=f"equal parts on {workers} workers", hint="`whole` keeps the whole layer on each worker")
            for name, layer in dense.items()
            if (reason := uneven_split_reason(name, layer, self.layers.get(name, WHOLE), workers)) is not None
        ]  # fmt: skip
        if problems:
            raise SpecError(problems)
        ways = choose_splits(list(dense.items()), samples, workers, self.layers)
        if set(ways.values()) <= {WHOLE}:
            raise SpecError(
                Problem(
                    NO_SPLIT if dense else "there is no Dense layer to split", self.where("strategy"),
                    "parallel.strategy", expected=f"a layer that can be split over {workers} workers",
                    hint="use `all_reduce`, or split a layer explicitly: `layers: {NAME: columns}`",
                )
            )  # fmt: skip
        axes = {product.layer: (product.kernel, 0 if ways[product.layer] == ROWS else 1) for product in products}
        return dict(axes[name] for name, way in ways.items() if way != WHOLE)
