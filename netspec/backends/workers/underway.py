"""What workers have set going and not waited for yet."""

from __future__ import annotations

from collections.abc import Callable

from netspec.parallel import Pending

_sent: dict[int, list[Pending]] = {}
"""What was started and not joined, by the address of its first array."""


def send(key: int, start: Callable[[], list[Pending]]) -> None:
    """Set something going, and let MPI go on with what is under way."""
    for others in _sent.values():
        for one in others:
            one.advance()
    finish(key)  # of a step that was broken off
    _sent[key] = start()


def finish(key: int) -> None:
    """Wait for what was sent from that address, if anything was."""
    for one in _sent.pop(key, ()):
        one.wait()
