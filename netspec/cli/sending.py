"""What workers send each other in a step of a training, before there are any."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from netspec.cli.output import count, size
from netspec.cli.scaling import as_trained, layers_of
from netspec.errors import InputError, listing
from netspec.parallel.costs.networks import NETWORKS, Cluster
from netspec.parallel.costs.plans import Job, Traffic, traffic
from netspec.parallel.costs.strategies import STRATEGIES
from netspec.parallel.costs.workload import Compute, Work
from netspec.schema.net import NetSpec
from netspec.schema.train import TrainSpec


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


def sending(spec: NetSpec | TrainSpec, workers: int, batch_size: int) -> Sending:
    """What the training's strategy sends, all-reduce where none is named; on hosts of one worker each.

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
    job, network = as_trained(Job(compute, batch_size), spec), NETWORKS["ib-hdr"]
    cluster, strategy = Cluster(workers, network, network), STRATEGIES[name]
    reason = strategy.why_not(job, cluster) if workers > 1 else None
    if reason is not None:
        raise InputError(f"{name} is not possible: {reason}", location=given.where() if given is not None else None)
    if workers == 1:
        return Sending(name, 1, compute.known[0].nbytes, 0, Traffic({"worker": 0.0}, 0.0, 0.0))
    plan = strategy.plan(job, cluster)
    found = traffic(plan, strategy.roles(job, workers))
    return Sending(name, workers, compute.known[0].nbytes, len(plan.during), found)
