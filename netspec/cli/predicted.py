"""What `netspec scale` found: as plain data, and as charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.cli.charts import Chart, Curve, Scale
from netspec.parallel.costs.networks import Cluster, Network
from netspec.parallel.costs.plans import Job
from netspec.parallel.costs.strategies import Prediction


@dataclass(frozen=True)
class Scaling:
    """Predictions for each strategy and number of workers."""

    name: str
    how: str
    """Where the times of one worker come from."""
    job: Job
    cluster: Cluster
    """Its ranks are those of each prediction instead."""
    counts: Sequence[int]
    predictions: Mapping[str, Sequence[Prediction | str]]
    """For each number of workers, or why there is none."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain data: seconds and bytes, of a step."""
        job = self.job
        return {
            "name": self.name,
            "samples": job.samples,
            "per_worker": job.per_worker,
            "gradient_bytes": job.compute.known[0].nbytes,
            "one_worker": {
                "from": self.how,
                "samples_per_second": job.alone,
                "steps": [{"samples": one.batch, "seconds": one.seconds} for one in job.compute.known],
                "adding_seconds_per_byte": job.adding,
            },
            "network": _network(self.cluster.between),
            "within": _network(self.cluster.within),
            "workers_per_host": self.cluster.per_host,
            "predictions": [
                self._prediction(name, number, one)
                for name, row in self.predictions.items()
                for number, one in zip(self.counts, row, strict=True)
            ],
        }

    def _prediction(self, strategy: str, workers: int, found: Prediction | str) -> dict[str, Any]:
        made: dict[str, Any] = {"strategy": strategy, "workers": workers, "hosts": self.cluster.of(workers).hosts}
        if isinstance(found, str):
            return {**made, "impossible": found}
        return {
            **made,
            "samples": found.batch,
            "step_seconds": found.times.step,
            "compute_seconds": found.times.compute,
            "communication_seconds": found.times.communication,
            "exposed_seconds": found.times.exposed,
            "waiting_seconds": found.times.waiting,
            "samples_per_second": found.samples_per_second,
            "speedup": found.speedup,
            "efficiency": found.efficiency,
            "sent_bytes": found.traffic.by_role,
            "total_bytes": found.traffic.total,
            "between_hosts_bytes": found.traffic.between_hosts,
        }

    def charts(self) -> list[Chart]:
        """Speedup and efficiency over the number of workers."""
        figures: list[tuple[str, Callable[[Prediction], float]]] = [
            ("speedup", lambda one: one.speedup),
            ("efficiency", lambda one: one.efficiency),
        ]
        doubled = Scale(logarithmic=True)
        return [
            Chart(
                f"{self.name}: {title}, {self.cluster.between.name}", "workers",
                [curve for name in self.predictions if (curve := self._curve(name, figure)).xs],
                doubled if title == "speedup" else Scale(), doubled,
            )
            for title, figure in figures
        ]  # fmt: skip

    def _curve(self, name: str, figure: Callable[[Prediction], float]) -> Curve:
        found = [
            (number, figure(one))
            for number, one in zip(self.counts, self.predictions[name], strict=True)
            if not isinstance(one, str)
        ]
        return Curve(name, [number for number, _ in found], [value for _, value in found])

    def left_out(self) -> Iterator[str]:
        """Why some strategies have no prediction, a line for each."""
        for name, row in self.predictions.items():
            reasons = [(number, one) for number, one in zip(self.counts, row, strict=True) if isinstance(one, str)]
            if reasons:
                numbers, reason = [number for number, _ in reasons], reasons[0][1]
                onwards = len(numbers) > 1 and numbers == list(self.counts[-len(numbers) :])
                lacking = numbers[:1] if onwards else numbers
                which = ", ".join(f"{one:,}" for one in lacking) + " workers" + ", nor more" * onwards
                yield f"{name} has none for {which}: {reason}"


def _network(found: Network) -> dict[str, Any]:
    return {"name": found.name, "alpha": found.alpha, "beta": found.beta, "source": found.source}
