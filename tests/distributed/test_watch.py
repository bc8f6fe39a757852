"""The watchdog: which failures of other workers it reports to this worker."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NoReturn

from netspec.distributed.monitoring.activity import ACTIVITY, training
from netspec.distributed.monitoring.watchdog import Mailbox, Watchdog, WatchdogMessage


class Letters(Mailbox):
    """A mailbox with prepared messages for worker 0 of two."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.come: deque[WatchdogMessage] = deque()

    def send(self, to: int, message: WatchdogMessage) -> None:
        pass

    def receive(self) -> tuple[int, WatchdogMessage] | None:
        return (1, self.come.popleft()) if self.come else None


def no_end(status: int) -> NoReturn:
    raise AssertionError(f"the job is ended with {status}")


def test_late_failure_does_not_reach_the_next_training() -> None:
    post = Letters()
    watchdog = Watchdog(post, no_end, [{"host": "here", "pid": number} for number in range(post.size)])

    def given_up_after(letter: WatchdogMessage) -> float:
        post.come.append(dict(letter))
        watchdog._tick(watchdog._ticked_at + 1)
        return ACTIVITY.gives_up_at

    with training():
        letter = {"kind": "failure", "training": ACTIVITY.trainings}
        assert given_up_after(letter) == watchdog._ticked_at
    assert ACTIVITY.gives_up_at == inf
    assert given_up_after(letter) == inf
    with training():
        assert given_up_after(letter) == inf
