"""One rank of benchmarks.bench_workers: trains ResNet-20 for some seconds; rank 0 prints the times of its steps.

mpiexec -n 2 python -m benchmarks.workers_rank netspec|sharded|torch SECONDS [RENDEZVOUS]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeAlias

from benchmarks.catalogue import NETS

NET, WARM = NETS["resnet20"], 3


Subject: TypeAlias = tuple[Callable[[], object], Callable[[], object], Callable[[], float], int | None]
"""A step, a barrier of all ranks, the share of a step in which communication is exposed, and the bytes of the solver's
states on a rank, if known."""


def netspec_step(*, sharded: bool) -> Subject:
    """Return netspec's step, by all_reduce or sharded_optimizer."""
    from benchmarks.netspec_subject import trained_by
    from netspec.distributed import join
    from netspec.tools.measuring.overlap import exposed as waiting

    workers = join()
    program, inputs, solver_bytes = trained_by(NET, workers.size, workers.rank, sharded=sharded)

    def step() -> None:
        program.write(inputs)
        program.run()

    def exposed() -> float:
        program.write(inputs)
        timings = program.timed()
        waited = waiting({node: seconds for node, seconds in timings if node is not None})
        return waited / sum(seconds for _, seconds in timings)

    return step, workers.barrier, exposed, solver_bytes


def torch_step(rendezvous: str) -> Subject:
    """Return PyTorch's step, with DistributedDataParallel over gloo if there are several ranks."""
    import torch
    from torch import distributed

    from benchmarks.torch_subject import TorchTraining

    rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
    torch.set_num_threads(1)
    subject = TorchTraining(NET, "eager", compared=False)
    share = NET.batch_size // size
    subject.images = subject.images[rank * share : (rank + 1) * share]
    subject.labels = subject.labels[rank * share : (rank + 1) * share]
    if size == 1:
        return subject.step, lambda: None, lambda: 0.0, None
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    subject.model = torch.nn.parallel.DistributedDataParallel(subject.model)
    return subject.step, distributed.barrier, lambda: 0.0, None


def measured(step: Callable[[], object], together: Callable[[], object], seconds: float) -> list[float]:
    """Return the times of steps, with a barrier before each; all ranks run the same number of steps."""
    for _ in range(WARM):
        step()
    began = perf_counter()
    step()
    times, count = [], max(5, round(seconds / max(perf_counter() - began, 1e-4)))
    from netspec.distributed import join

    count = int(join().broadcast_object(count))
    for _ in range(count):
        together()
        start = perf_counter()
        step()
        times.append(perf_counter() - start)
    return times


def main() -> None:
    """Measure one subject."""
    subject, seconds, *rendezvous = sys.argv[1:]
    subject_step = torch_step(*rendezvous) if subject == "torch" else netspec_step(sharded=subject == "sharded")
    step, together, exposed, solver_bytes = subject_step
    result: dict[str, Any] = {"steps": measured(step, together, float(seconds)), "solver_bytes": solver_bytes}
    result["exposed"] = sorted(exposed() for _ in range(9))[4]
    if os.environ.get("PMI_RANK", "0") == "0":
        print(json.dumps(result))


if __name__ == "__main__":
    main()
