"""What workers send each other in a step of a training, before there are any."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from netspec.backends.device import open_device
from netspec.cli.output import count, size
from netspec.cli.scaling import as_trained, layers_of
from netspec.compile import Compiler
from netspec.errors import InputError, listing
from netspec.graph.types import DType
from netspec.parallel.costs.collectives import ring
from netspec.parallel.costs.networks import NETWORKS, Cluster
from netspec.parallel.costs.plans import Job, Traffic, traffic
from netspec.parallel.costs.strategies import STRATEGIES
from netspec.parallel.costs.workload import Compute, Work
from netspec.parallel.strategies.base import Strategy
from netspec.parallel.strategies.top_k import TopK
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.train.crew import lasting


@dataclass(frozen=True)
class Sending:
    """What a strategy sends in a step."""

    strategy: str
    workers: int
    gradient_bytes: int
    messages: int
    """In which the gradients go, one after the other while backward goes on; 0: they do not."""
    traffic: Traffic
    """The mean of steps, where not all are alike."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    def told(self) -> str:
        """The same for people."""
        each = ", ".join(f"a {role} {size(round(nbytes))}" for role, nbytes in self.traffic.by_role.items())
        going = f"{count(self.messages)} messages while backward goes on" if self.messages else "after the step"
        return (
            f"{self.strategy} on {count(self.workers)} workers sends in a step, of {size(self.gradient_bytes)} of "
            f"gradients: {each}, all together {size(round(self.traffic.total))}; {going}"
        )


def _compiled(spec: TrainSpec, strategy: Strategy) -> Compiler:
    """With all states that the solver and the strategy keep; nothing is allocated."""
    assert isinstance(spec.solver, SolverSpec)
    device, dtype = open_device("null"), DType(spec.train.precision)
    return Compiler(
        spec.net, solver=spec.solver, dtype=dtype, device=device, loop=spec.train, centers=strategy.has_center
    )


def sending(spec: NetSpec | TrainSpec, workers: int, batch_size: int) -> Sending:
    """What the training's strategy sends, all-reduce where none is named; on hosts of one worker each.

    Sums are those of a ring: no algorithm sends fewer bytes.

    Raises `InputError` where the strategy is impossible.
    """
    given = spec.parallel if isinstance(spec, TrainSpec) else None
    name = str(getattr(given, "strategy", "all_reduce"))
    if getattr(given, "reduce_in", "float32") != "float32":  # of 16 bits all are alike
        name = "all_reduce_bfloat16"
    layers = tuple(layer for layer, _ in layers_of(spec))
    compute = Compute((Work(batch_size, layers),))
    if name not in STRATEGIES:
        known = listing(list(STRATEGIES))
        raise InputError(f"what {name} sends is not known", location=given.where() if given else None, expected=known)
    job, network = as_trained(Job(compute, batch_size, algorithm=ring), spec), NETWORKS["ib-hdr"]
    cluster, strategy = Cluster(workers, network, network), STRATEGIES[name]
    if isinstance(given, TopK):
        job = replace(job, density=given.density)
    reason = strategy.why_not(job, cluster) if workers > 1 else None
    if reason is not None:
        raise InputError(f"{name} is not possible: {reason}", location=given.where() if given is not None else None)
    if workers == 1:
        return Sending(name, 1, compute.known[0].nbytes, 0, Traffic({"worker": 0.0}, 0.0, 0.0))
    if isinstance(spec, TrainSpec) and isinstance(given, Strategy) and not given.sums_gradients:
        nbytes = given.sent(lasting(_compiled(spec, given)), workers)
        return Sending(name, workers, compute.known[0].nbytes, 0, Traffic({"worker": nbytes}, *[workers * nbytes] * 2))
    plan = strategy.plan(job, cluster)
    found = traffic(plan, strategy.roles(job, workers))
    return Sending(name, workers, compute.known[0].nbytes, len(plan.during), found)
