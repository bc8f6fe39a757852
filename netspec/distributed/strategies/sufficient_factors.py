"""Sufficient factor broadcasting: workers send the factors of dense layers' gradients and recompute the gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from netspec.distributed.communicators.base import Communicator
from netspec.distributed.strategies.base import Replica, SynchronousStrategy
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.graph.ops.all_gather import FactorPair
from netspec.schema.specs.kinds import STRATEGIES
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.spec import describe, problem

BROADCAST_ROLES = ("parameter", "statistic", "slot")


def _network(text: str) -> str:
    """Check the name or the parameters of a network. Raises the error that pydantic reports."""
    from netspec.distributed.cost_model.networks import parse_network

    try:
        parse_network(text, "network")
    except InputError as error:
        (cause,) = error.problems
        raise problem(cause.message, expected=cause.expected, got=describe(text), hint=cause.hint) from None
    return text


@STRATEGIES.register
class SufficientFactors(SynchronousStrategy):
    """Send the factors of a dense layer's gradient if that takes less time than sending the matrix.

    The gradient of a matrix is a sum of products u vᵀ over samples: u is the input of the layer, v the gradient of its
    output. Each worker receives u and v of all samples and multiplies them, which is p times the work of its own
    samples. The bytes grow with the batch instead of the matrix. All other gradients, and those of layers for which it
    does not pay off, are summed in buckets as by `all_reduce`; the steps are the same except for rounding. Zhang et al.
    2017, "Poseidon", arXiv:1706.03292, section 3.2; Chilimbi et al. 2014, "Project Adam", OSDI.
    """

    strategy: Literal["sufficient_factors"] = "sufficient_factors"
    layers: Literal["auto", "all"] | Annotated[list[str], Field(min_length=1)] = "auto"
    """Layers that send factors: those for which it takes less time (`auto`), all that have factors, or those with these
    names."""
    network: Annotated[str, AfterValidator(_network)] = "ethernet-10g"
    """Network between workers for `layers: auto`: a name that `netspec scale --network` accepts, or
    `alpha=25us,beta=0.8ns`."""
    speed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e11
    """Operations per second of a worker's matrix products, for `layers: auto`."""

    samples: ClassVar = ({}, {"layers": "all"}, {"layers": ["fc1"]}, {"network": "ib-hdr", "speed": 2e12})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        """Yield a problem for each name under `layers` that is repeated or unknown."""
        layer_names = [link.name for link in resolve_names(training.net).layers]
        named = self.layers if isinstance(self.layers, list) else []
        for number, name in enumerate(named):
            if name in named[:number]:
                yield Problem(
                    f"`{name}` is named twice", self.where("layers", number), f"layers.{number}",
                    expected="each layer once",
                )  # fmt: skip
            elif name not in layer_names:
                yield Problem(
                    f"there is no layer `{name}`", self.where("layers", number), f"layers.{number}",
                    expected=f"some of {listing(layer_names)}", hint=did_you_mean(name, layer_names),
                )  # fmt: skip

    def sends_factors(self, layer: str, terms: Sequence[FactorPair], *, samples: int, workers: int) -> bool:
        """Return whether `workers` workers with `samples` samples each in a step send the factors of a layer."""
        if self.layers == "all":
            return True
        if self.layers != "auto":
            return layer in self.layers
        from netspec.distributed.cost_model.collectives import auto
        from netspec.distributed.cost_model.networks import Cluster, parse_network
        from netspec.distributed.cost_model.strategies import factors_pay
        from netspec.distributed.cost_model.workload import DenseShape

        network = parse_network(self.network)
        parts = [DenseShape(term.inputs, term.units, term.positions) for term in terms]
        recompute_seconds = (
            sum(2 * (workers - 1) * samples * part.positions * part.inputs * part.units for part in parts) / self.speed
        )
        return factors_pay(parts, samples, recompute_seconds, Cluster(workers, network, network), auto)

    def check_layers(self, possible: frozenset[str]) -> None:
        """Raise `InputError` if a named layer, or every layer, has no factors to send."""
        if not possible:
            message, expected = "no layer has a gradient that is a product over samples", "a net with a Dense layer"
        else:
            missing = sorted(set(self.layers) - possible) if isinstance(self.layers, list) else []
            if not missing:
                return
            message = f"{listing(missing)}: the gradient is not a product over samples"
            expected = f"some of {listing(sorted(possible))}"
        raise InputError(Problem(message, self.where("layers") or self.where(), "parallel.layers", expected=expected))

    def before_view(self, group: Communicator, replica: Replica) -> None:
        """Copy the states of worker 0 to all workers: different machines round products differently."""
        for name in replica.names(*BROADCAST_ROLES):
            array = replica.read(name)
            group.broadcast(array)
            replica.write(name, array)
