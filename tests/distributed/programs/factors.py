"""Products of the rows of all workers; each worker checks them, and the first one that all are the same."""

import numpy as np

from netspec.backends.device_registry import open_device
from netspec.backends.program import Program
from netspec.backends.states import States
from netspec.cli.workers import join_job, leave_job
from netspec.compile import make_plan
from netspec.distributed import world
from netspec.distributed.partitioning.bucketing import BucketGradients
from netspec.graph.graph import Graph
from netspec.graph.ops.all_gather import AllGatherRows
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.source import Input
from netspec.graph.ops.unary import Tanh
from netspec.graph.types import DType, TensorType

MAX_ROWS, INPUTS, UNITS = 7, 300, 90

join_job()
workers = world()
rank, size = workers.rank, workers.size


def rows_of(worker: int, step: int) -> dict[str, np.ndarray]:
    """Return the rows of a worker; higher ranks have fewer."""
    random = np.random.default_rng([worker, step])
    rows = MAX_ROWS - worker
    return {"x": random.standard_normal((rows, INPUTS)), "dy": random.standard_normal((rows, UNITS))}


device = open_device("cpu")
for dtype in (DType.FLOAT32, DType.FLOAT64):
    rows = MAX_ROWS - rank
    x, dy = (Input(name, TensorType((rows, n), dtype))() for name, n in (("x", INPUTS), ("dy", UNITS)))
    gather = AllGatherRows(size, MAX_ROWS)
    graph = Graph({"product": MatMul(transpose_a=True)(gather(x), gather(Tanh()(dy)))})
    program = Program(make_plan(graph, device, passes=[BucketGradients()]), device, States({}, device))
    for step in range(5):
        product = program({name: array.astype(str(dtype)) for name, array in rows_of(rank, step).items()})["product"]
        everyone = [rows_of(worker, step) for worker in range(size)]
        expected = sum(factors["x"].T @ np.tanh(factors["dy"]) for factors in everyone)
        # sums of this many products below 5, each rounded once
        np.testing.assert_allclose(
            product, expected, rtol=0, atol=5 * size * MAX_ROWS * float(np.finfo(str(dtype)).eps)
        )
        assert len(set(workers.all_gather_bytes(product.tobytes()))) == 1
    with workers.silence():  # without messages, the rows of the other workers are zeros
        if workers.is_first:
            product = program({name: array.astype(str(dtype)) for name, array in rows_of(0, 0).items()})["product"]
            alone = rows_of(0, 0)
            np.testing.assert_allclose(product, alone["x"].T @ np.tanh(alone["dy"]), rtol=0, atol=1e-4)
if workers.is_first:
    print("all agree", flush=True)
leave_job(0)
