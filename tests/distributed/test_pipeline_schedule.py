"""Pipeline schedules: each micro-batch has one forward and one backward, few are kept, and stages do not deadlock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from netspec.distributed.partitioning.pipeline.schedule import Task, gpipe, one_forward_one_backward

SIZES = [(1, 1), (1, 5), (2, 1), (2, 2), (2, 7), (3, 4), (4, 2), (4, 16), (5, 3)]


def turns_of(kind: str, parts: int, stages: int) -> list[list[Task]]:
    if kind == "gpipe":
        return [gpipe(parts)] * stages
    return [one_forward_one_backward(parts, stage, stages) for stage in range(stages)]


@pytest.mark.parametrize(("stages", "parts"), SIZES)
@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
def test_each_micro_batch_has_one_forward_and_one_backward(kind: str, stages: int, parts: int) -> None:
    for stage, turns in enumerate(turns_of(kind, parts, stages)):
        assert sorted(turn.part for turn in turns if turn.forward) == list(range(parts))
        assert sorted(turn.part for turn in turns if not turn.forward) == list(range(parts))
        in_flight, most = set[int](), 0
        for turn in turns:
            if turn.forward:
                in_flight.add(turn.part)
            else:
                in_flight.remove(turn.part)  # raises if its forward has not run
            most = max(most, len(in_flight))
        assert most == (parts if kind == "gpipe" else min(parts, stages - stage))


def calls(turns: Sequence[Task], stage: int, stages: int) -> Iterator[tuple[str, int, str]]:
    """Return the calls of a stage that involve another one: `post`, `join` or `send`, the other stage, the direction.

    It receives what the next turn needs while it computes, and one value goes from each stage to all that follow.
    """

    def received(turn: Task) -> list[tuple[int, str]]:
        others = range(stage) if turn.forward else range(stage + 1, stages)
        return [(other, "there" if turn.forward else "back") for other in others]

    yield from (("post", *operation) for operation in received(turns[0]))
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        yield from (("join", *operation) for operation in received(turn))
        yield from (("post", *operation) for operation in (received(following) if following else ()))
        others = range(stage + 1, stages) if turn.forward else range(stage)
        yield from (("send", other, "there" if turn.forward else "back") for other in others)


@pytest.mark.parametrize(("stages", "parts"), SIZES)
@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
def test_workers_do_not_deadlock(kind: str, stages: int, parts: int) -> None:
    """No deadlock even if each message is only sent after the previous one has arrived, and arrives when waited for."""
    todo = [list(calls(turns, stage, stages)) for stage, turns in enumerate(turns_of(kind, parts, stages))]
    done, sent, posted, joined = [0] * stages, dict[object, int](), dict[object, int](), dict[object, int]()
    moved = True
    while moved:
        moved = False
        for stage, operations in enumerate(todo):
            while done[stage] < len(operations):
                kind, other, direction = operations[done[stage]]
                channel = (other, stage, direction) if kind != "send" else (stage, other, direction)
                if kind == "send" and sent.get(channel, 0) > posted.get(channel, 0):
                    break  # the previous message has not arrived
                if kind == "join" and joined.get(channel, 0) >= sent.get(channel, 0):
                    break
                counts = {"send": sent, "post": posted, "join": joined}[kind]
                counts[channel] = counts.get(channel, 0) + 1
                done[stage] += 1
                moved = True
    assert done == list(map(len, todo))
    assert sent == posted == joined
    assert all(count == parts for count in sent.values())
