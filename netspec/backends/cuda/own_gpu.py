"""Which GPU this process computes on: where several workers are on a host, one of its own."""

from __future__ import annotations

import platform
from collections import Counter
from typing import Any

from netspec.errors import InputError
from netspec.parallel import nccl, world


def own_gpu(cupy: Any, count: int, number: int | None) -> int:
    """The number of the GPU of this process, which sees so many, where `number` is asked for.

    All workers come here. A launcher may let each of them see another GPU alone. Raises `InputError` where two have the
    same, or there is no NCCL.
    """
    workers = world()
    if workers.size == 1:
        return number or 0
    if number is not None:
        raise InputError(
            "each of several workers has a GPU of its own", expected="`--device cuda`",
            got=f"`--device cuda:{number}` for {workers.size} workers",
        )  # fmt: skip
    nccl.check()
    found = workers.host_rank % count
    told = workers.gather([platform.node(), cupy.cuda.runtime.deviceGetPCIBusId(found)])
    on_host = Counter(host for host, _ in told)
    for host, ranks in on_host.items():
        gpus = len({gpu for name, gpu in told if name == host})
        if gpus < ranks:
            raise InputError(
                "there are fewer GPUs than workers", expected="a GPU for each worker",
                got=f"{gpus} GPU{'s' * (gpus > 1)} for {ranks} workers of the host {host}",
                hint=f"`--workers {gpus}`, or more hosts with as many workers each as they have GPUs",
            )  # fmt: skip
    return found
