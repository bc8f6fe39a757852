"""What workers have set going and not waited for yet."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from netspec.graph.kernel import Thunk
from netspec.parallel import Communicator, Pending, world


def send(workers: Communicator, key: int, start: Callable[[], list[Pending]]) -> None:
    """Set something going, by the address of its first array, and let MPI go on with what is under way."""
    for others in workers.under_way.values():
        for one in others:
            one.advance()
    workers.finish(key)  # of a step that was broken off
    workers.under_way[key] = start()


def joining(key: Hashable, place: Thunk) -> Thunk:
    """What waits for what was set going under a key, and puts what came where it belongs."""
    workers = world()

    def run() -> None:
        workers.finish(key)
        place()

    return run
