"""Pipeline parallelism: each worker has consecutive layers, and a batch passes through them in micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, PositiveInt

from netspec.distributed.strategies.base import Strategy
from netspec.errors import Problem, did_you_mean, listing
from netspec.schema.specs.field_types import Name, as_names
from netspec.schema.specs.kinds import STRATEGIES
from netspec.schema.specs.links import resolve_names


def _cuts(value: object) -> object:
    return value if value in (None, "auto") else as_names(value)


def stage_role(stage: int) -> str:
    """Return the role of the worker that computes a stage."""
    return f"stage {stage}"


@STRATEGIES.register
class Pipeline(Strategy):
    """Divide the layers among the workers; the batch passes through these stages in micro-batches.

    While a stage computes one micro-batch, the next stage computes the previous one. Steps are synchronous: gradients
    of all micro-batches are summed before the update, as with `accumulate`. With m micro-batches on p stages, each
    worker is idle for (p - 1)/(m + p - 1) of a step. Huang et al. 2019, "GPipe: efficient training of giant neural
    networks using pipeline parallelism", arXiv:1811.06965; Narayanan et al. 2021, "Efficient large-scale language model
    training on GPU clusters using Megatron-LM", arXiv:2104.04473.
    """

    strategy: Literal["pipeline"] = "pipeline"
    micro_batches: PositiveInt = 8
    """Number of parts of a batch: more parts reduce idle time, but each is computed less efficiently. Layers with batch
    statistics see one part."""
    schedule: Literal["gpipe", "1f1b"] = "1f1b"
    """`gpipe`: forward passes of all micro-batches, then all backward passes. `1f1b`: each backward pass as early as
    possible, which takes the same time, but memory for at most as many micro-batches as there are stages."""
    cuts: Annotated[Literal["auto"] | tuple[Name, ...], BeforeValidator(_cuts)] = "auto"
    """First layers of the second stage and of each later one; `auto` minimizes the cost of the most expensive stage,
    estimated from arithmetic and memory traffic."""

    splits_batches: ClassVar[bool] = False
    foreign_fields: ClassVar = {
        **Strategy.foreign_fields,
        "chunks": "`chunks` is PyTorch's name: use `micro_batches`",
        "n_microbatches": "`n_microbatches` is PyTorch's name: use `micro_batches`",
        "num_microbatches": "use `micro_batches`",
        "micro_batch_size": "use `micro_batches`: how many there are in a batch",
        "stages": "there is one stage per worker (`--workers 4`); `cuts` sets where stages begin",
        "split_points": "use `cuts`",
        "balance": "use `cuts`: the layers that stages begin with",
    }
    samples: ClassVar = ({}, {"micro_batches": 4, "schedule": "gpipe"}, {"micro_batches": 2, "cuts": ["fc1"]})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield the settings that do not work with micro-batches."""
        batch_size, loop = training.data.train.batch_size, training.train
        if self.micro_batches > batch_size:
            yield Problem(
                "`micro_batches` is larger than the batch", self.where("micro_batches"), "micro_batches",
                expected=f"{batch_size} or fewer, which is the `batch_size`", got=str(self.micro_batches),
            )  # fmt: skip
        if loop.accumulate > 1:
            yield Problem(
                "`accumulate` cannot be combined with a pipeline, which accumulates gradients over `micro_batches`",
                loop.where("accumulate"),
                expected="`accumulate: 1`", got=str(loop.accumulate),
                hint="for the same updates, remove `accumulate`, and set "
                f"`batch_size: {loop.accumulate * batch_size}` and "
                f"`micro_batches: {loop.accumulate * self.micro_batches}`",
            )  # fmt: skip
        if loop.recompute == "all":
            yield Problem(
                "`recompute: all` is not supported by a pipeline", loop.where("recompute"),
                expected="`auto` or `none`", got="all", hint="`schedule: 1f1b` needs the least memory",
            )  # fmt: skip
        if training.solver.full_batch:
            yield Problem(
                f"{training.solver.type} reads the whole training set in a step, not micro-batches",
                training.solver.where(), expected="a different solver", got=training.solver.type,
            )  # fmt: skip
        for index, group in enumerate(training.solver.groups):
            if group.losses is not None:
                yield Problem(
                    "groups with their own `losses` are not supported by a pipeline, which differentiates the sum of "
                    "all losses once", training.solver.where("groups", index, "losses"),
                    expected="no `losses` in `solver.groups`, or a different strategy",
                )  # fmt: skip
        yield from self._unknown(training.net)

    def rank_problems(self, training: Any, ranks: int) -> Iterator[Problem]:
        """Yield the problems of running the pipeline on `ranks` ranks."""
        layers = training.net.layers
        if ranks > len(layers):
            yield Problem(
                "the net has fewer layers than there are workers", training.net.where("layers"), "net.layers",
                expected=f"{ranks} or more, at least one per worker", got=str(len(layers)),
            )  # fmt: skip
        if self.cuts != "auto" and ranks > 1 and len(self.cuts) != ranks - 1:
            yield Problem(
                f"`cuts` makes {len(self.cuts) + 1} stages for {ranks} workers", self.where("cuts"), "parallel.cuts",
                expected=f"{ranks - 1} names: the first layer of each stage from the second on",
                got=f"{len(self.cuts)}: {listing(self.cuts)}",
            )  # fmt: skip

    def roles(self, workers: int) -> dict[str, int]:
        """Return one role per stage."""
        return {stage_role(stage): 1 for stage in range(workers)}

    def _unknown(self, net: Any) -> Iterator[Problem]:
        """Yield a problem for each name under `cuts` that no stage can begin with."""
        if self.cuts == "auto":
            return
        names = [link.name for link in resolve_names(net).layers]
        positions, last = {name: position for position, name in enumerate(names)}, 0
        for index, name in enumerate(self.cuts):
            position = positions.get(name)
            if position is None:
                problem = f"there is no layer `{name}`", f"one of {listing(names[1:])}", did_you_mean(name, names)
            elif position <= last:
                problem = f"a pipeline stage can't begin with `{name}`", f"a layer after `{names[last]}`", None
            else:
                last = position
                continue
            message, expected, hint = problem
            where = self.where("cuts", index) or self.where("cuts")
            yield Problem(message, where, f"cuts.{index}", expected=expected, got=repr(name), hint=hint)
