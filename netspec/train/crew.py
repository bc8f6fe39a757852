"""`Crew`: the workers of a training as one of them sees them: who writes, what all agree on, where all start from."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.openmp import set_threads
from netspec.data.shares import Share
from netspec.errors import RunError
from netspec.parallel import Communicator
from netspec.parallel.by_host import groups_by_host
from netspec.parallel.messages import hosts_of
from netspec.parallel.strategies import all_reduce
from netspec.parallel.strategies.base import Strategy
from netspec.parallel.world import break_off
from netspec.train.environment import threads
from netspec.train.interrupt import Signals
from netspec.train.sending import Batches, Epoch, messages
from netspec.train.served import Connection, connection, server
from netspec.train.wholes import Wholes

if TYPE_CHECKING:
    from netspec.compile import Compiler
    from netspec.data.loader import Loader
    from netspec.errors import Location
    from netspec.parallel.costs.networks import Cluster
    from netspec.parallel.messages import Message
    from netspec.train.progress import Progress


MEET_WITHIN = 60.0
"""Seconds in which all workers must have saved what they have, after one has failed."""


ENDS_WITHIN = 20.0
"""Seconds in which it must have said why."""


@dataclass(frozen=True)
class Origin:
    """Where a loss that is not finite came from."""

    what: str
    location: Location | None
    known: bool
    """Whether it is a certain node or state; else this worker's part of the loss was finite."""


class Crew:
    """The workers of a training, all of which do the same on different samples."""

    def __init__(self, everyone: Communicator, strategy: Strategy | None = None) -> None:
        self.everyone, self.is_first, self.alone = everyone, everyone.is_first, everyone.size == 1
        self.strategy = strategy or all_reduce.AllReduce()
        servers = self.strategy.servers_among(everyone.size)
        self.size = everyone.size - servers
        """How many workers there are, servers apart."""
        self.serves = everyone.rank >= self.size
        """Whether this one is a server, and no worker."""
        self.workers = everyone.below(self.size) if servers else everyone
        """The workers; of a server, the servers."""
        self.servers: Connection | None = None
        """What this worker does with the servers, once all have begun."""
        self.sums = self.size > 1 and self.strategy.sums_gradients
        """Whether every step is one of all workers together."""
        one = self.strategy
        self.shards = one.shards if isinstance(one, all_reduce.AllReduce) and one.deterministic else None
        """Parts of a batch that are computed and added in a fixed order, if that is asked for."""
        self.hosts = everyone.hosts()
        """How many ranks each host has."""
        self.by_host = self.sums and isinstance(one, all_reduce.AllReduce) and one.goes_by_host(self.hosts)
        """Whether gradients are summed up host by host."""
        if self.by_host and everyone.by_host is None:
            everyone.by_host = groups_by_host(everyone)
        self.share = Share(everyone.rank, self.size, self.shards)
        """Of what is divided among the workers: evaluations, and batches of the training where they split these."""
        self.training_share = self.share if self.strategy.splits_batches else Share()
        self._expected = self._sent = 0.0
        """Bytes that this worker is to send in a step, and has sent in all steps."""
        self._steps = 0
        self._before: float | None = None
        """What it had sent before the step that is under way."""
        self._wholes: Wholes | None = None

    def wholes(self, compiler: Compiler) -> Wholes:
        """What the workers know of each other's states. They find it out the first time, when all come here."""
        if self._wholes is None:
            self._wholes = Wholes(self.everyone, compiler)
        return self._wholes

    def use_own_cores(self) -> None:
        """Where nobody said how many threads to compute with: as many as each worker of the host gets cores.

        One, where results are not to depend on the number of workers: kernels split sums by it.
        """
        if not os.environ.get("OMP_NUM_THREADS") and (self.shards is not None or self.everyone.host_size > 1):
            count = 1 if self.shards is not None else max(1, threads() // self.everyone.host_size)
            os.environ["OMP_NUM_THREADS"] = str(count)
            set_threads(count)  # for a library that has read it already

    def align(
        self,
        compiler: Compiler,
        loader: Loader,
        progress: Progress,
        own: Sequence[Mapping[str, Any]] = (),
        wholes: Mapping[str, Any] = MappingProxyType({}),
    ) -> Progress:
        """Have all workers go on from where the first one is: states, place in the data, progress.

        `own` is what each further worker had of its own: it has it again, or where they are others than they were,
        each has its part of what is kept for later, and the mean of all else. `wholes` are states that the first worker
        has not all of itself: each worker gets its pieces of them.
        """
        before = 1 + int(self.workers.shared(len(own)))
        if before != self.size and self.is_first:
            for name in own[0] if own else compiler.names("residual"):
                if name in compiler.info:
                    _merge(compiler, name, [one[name] for one in own], self.size)
        if self.alone:
            return progress
        loader.go_on_from(*self.workers.shared(loader.place))
        known = self.wholes(compiler)
        for name in known.common:
            host, role = compiler.states[name], compiler.info[name].role
            self.workers.broadcast(np.ascontiguousarray(host).reshape(-1).view(np.uint8))
            compiler.states.assign(name, host if self.is_first or role != "gradient" else np.zeros_like(host))
        compiler.follow(known.divided)
        gathered = {one.gathers: name for name, one in compiler.info.items() if one.gathers in known}
        first = {name: compiler.states[name] for name in known.copies}
        begun = {whole: compiler.states[name] for whole, name in gathered.items() if whole}
        known.hand_out({**first, **(wholes or begun)})
        if before == self.size > 1:
            for name in self.workers.shared(list(own[0]) if own else None):
                stacked = np.stack([compiler.states[name], *(one[name] for one in own)]) if own else None
                compiler.states.assign(name, self.workers.hand_out(stacked, compiler.states[name]))
        found = type(progress).from_json(self.workers.shared(asdict(progress)))
        if not self.is_first:
            found.part.weight = 0.0  # what is summed up of a step so far is the first worker's
        if self.size < self.everyone.size:
            self.everyone.shared(found.step)
            self.servers = connection(self.everyone, self.workers, self.strategy, compiler, found.step)
            self.servers.look()
        return found

    def serve(self, compiler: Compiler) -> None:
        """What a server does, from where the workers `align` themselves until they have all left."""
        known = self.wholes(compiler)
        known.hand_out({})
        step = self.everyone.shared(None)
        server(self.everyone, self.workers, self.strategy, compiler, known, step).serve()

    def leave(self, told: Any = None) -> Any:
        """Have the servers end; what the first worker tells all, servers too."""
        if self.servers is not None:
            self.servers.leave()
        found = self.everyone.shared(told)
        self.everyone.give_back_memory()
        return found

    def ask(self, signals: Signals, step: int) -> Asked | AskedOfServers:
        """Find out, while this step is computed, whether any worker was asked to stop or to write a checkpoint."""
        if self._before is None:
            self._before = self._sent_so_far
        if self.servers is not None:
            self.servers.signals = signals
            return AskedOfServers(self.servers, step)
        return Asked(self.workers, signals, meets=self.size == 1 or self.strategy.meets(step))

    @property
    def _sent_so_far(self) -> float:
        """Bytes that this rank has sent, to workers and servers."""
        return self.everyone.sent + (self.workers.sent if self.servers is not None else 0.0)

    def after_step(self, step: int, compiler: Compiler) -> None:
        """What the strategy has the workers do after each step."""
        if self.size > 1:
            self.strategy.after_step(step, self.workers, _States(compiler))
        if self._before is not None:
            self._sent, self._steps = self._sent + self._sent_so_far - self._before, self._steps + 1
            self._before = None

    def expect(self, compiler: Compiler, epoch: Epoch, steps: range) -> None:
        """Find out what a step sends, from what it is compiled to: the mean of those `steps`."""
        if self.alone:
            return
        cluster = hosts_of(self.everyone.size, self.everyone.host_size)
        role, workers = next(iter(self.strategy.roles(cluster.ranks).items()))  # the first worker's
        total, starts = 0.0, self.strategy.stages
        for begin, end in pairwise([*starts, max(steps.stop, starts[-1])]):
            these = range(max(begin, steps.start), min(end, steps.stop))
            lasts = these.stop // epoch.steps - these.start // epoch.steps
            if not these:
                continue
            if len(these) > lasts:
                for one in self._messages(compiler, cluster, epoch.usual, begin):
                    total += (one.among(these) - one.among(these, epoch.steps)) * one.sent(role) / workers
            if lasts:
                for one in self._messages(compiler, cluster, epoch.last, begin):
                    total += one.among(these, epoch.steps) * one.sent(role) / workers
        self._expected = total / max(len(steps), 1)

    def _messages(self, compiler: Compiler, cluster: Cluster, batches: Batches, step: int) -> Sequence[Message]:
        """Those of a step; of parts of a batch, as if all had as many sums to tell as the first worker."""
        if self.shards is None:
            return messages(compiler, self.strategy, cluster, batches, self.strategy.stage(step))
        from netspec.train.shards import messages_of_parts

        return messages_of_parts(compiler, self.shards, cluster, batches, rank=0)

    def sent_facts(self) -> dict[str, Any]:
        """Bytes that the first worker is to send in a step, and has sent, in the mean; nothing of one alone."""
        if self.alone:
            return {}
        measured = {"measured": round(self._sent / self._steps)} if self._steps else {}
        return {"bytes_per_step": {"expected": round(self._expected), **measured}}

    def late_facts(self) -> dict[str, int]:
        """How many gradients came too late so far, where servers do not wait for all."""
        return {"late_gradients": self.servers.late} if self.servers is not None and self.servers.may_be_late else {}

    def rates(self, rates: Mapping[str, float]) -> Mapping[str, float]:
        """The learning rates of this worker's update: its share, where those of all add up."""
        return {name: one / self.size for name, one in rates.items()} if self.strategy.adds_up else rates

    @contextmanager
    def looking(self, compiler: Compiler) -> Iterator[None]:
        """What an evaluation or a checkpoint is made in: all come here, and find one state on all of them."""
        if self.alone:
            yield
            return
        if self.servers is not None:
            self.servers.look()
        self.strategy.before_looking(self.workers, _States(compiler))
        if self.strategy.shared:
            compiler.states.version += 1  # others have written to them
        if self.wholes(compiler).gathered:
            if self.servers is not None:
                self.servers.gather()
            self.wholes(compiler).gather()
        for name, owner in compiler.owners.items():
            array = compiler.states[name]
            self.workers.broadcast(array, owner)
            compiler.states.assign(name, array)
        yield
        self.strategy.after_looking(self.workers)

    def assembled(self, compiler: Compiler) -> dict[str, Any]:
        """What a checkpoint holds of states of which each has a part, on the first worker. All come here."""
        if self.servers is not None:
            self.servers.assemble()
        return self.wholes(compiler).assembled()

    def own_states(self, compiler: Compiler) -> list[dict[str, Any]]:
        """What each further worker has of its own, on the first one; nothing on the others. All come here."""
        if self.size == 1:
            return []
        found = {name: self.workers.collect(compiler.states[name]) for name in compiler.names(*self.strategy.own)}
        if not found or not self.is_first:
            return []
        return [{name: stacked[rank] for name, stacked in found.items()} for rank in range(1, self.size)]

    def fits_together(self, step: int, saved: int, *, whole: bool) -> bool:
        """After the failure of a worker: whether what all have makes a checkpoint, and one that is not written yet.

        `step` is the last that this worker has done, `saved` that of its last checkpoint. `whole`: no step that was
        broken off has changed anything. All that can still come here. Raises `Broken` where not all do.
        """
        if self.servers is not None:  # which serve on, and have the parameters
            self.servers.fail()
        if self.size == 1:
            return whole and saved != step
        break_off(self.size)
        self.workers.meet_again(MEET_WITHIN)
        told = self.workers.gather([step, saved, whole])
        alike = not self.sums or len({one[0] for one in told}) == 1
        return alike and all(one[2] for one in told) and told[0][0] != told[0][1]

    def end(self) -> RunError:
        """Wait for the end of all, which the worker brings that has failed; where it does not, what is wrong."""
        time.sleep(ENDS_WITHIN)
        return RunError("another worker has failed, and has not said why")

    def mean(self, total: float, count: int) -> float:
        """The mean of so many numbers with this sum, and of those of all workers where each found others."""
        if self.size > 1 and not self.sums and self.servers is None:  # servers have told what all found
            total, count = map(sum, zip(*self.workers.gather([total, count]), strict=True))
        return total / count if count else nan

    def each(self, results: Iterator[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], ...]]:
        """What every worker finds, round by round in the order of ranks, until nobody finds anything more."""
        if self.size == 1:  # nothing to be packed for anybody
            yield from ((one,) for one in results)
            return
        while True:
            mine = next(results, None)
            found = self.workers.gather_arrays({} if mine is None else {k: np.asarray(v) for k, v in mine.items()})
            if not any(found):
                return
            yield tuple(one for one in found if one)

    def skipped(self, samples: int, examples: Sequence[str]) -> tuple[int, list[str]]:
        """How many damaged samples all workers left out, and examples."""
        found = self.workers.gather([samples, list(examples)])
        return sum(one[0] for one in found), [line for one in found for line in one[1]]

    def origin(self, mine: Origin) -> Origin:
        """That of the first worker who knows."""
        from netspec.errors import Location

        if not self.sums:  # nobody else has come here
            return mine
        place = mine.location
        told = [mine.what, mine.known, place and [place.file, place.line, place.column, place.text]]
        found = self.workers.gather(told)
        number = next((index for index, one in enumerate(found) if one[1]), 0)
        what, known, where = found[number]
        told_by = f"{what} (worker {number})" if known else what
        return Origin(told_by, None if where is None else Location(*where), known)

    def facts(self, batch_size: int) -> dict[str, Any]:
        """What the log says of the workers; nothing of one alone."""
        if self.alone:
            return {}
        servers = self.everyone.size - self.size
        parts = [Share(number, self.size, self.shards).of(0, batch_size) for number in range(self.size)]
        return {
            **self.everyone.describe(),
            **({"servers": servers} if servers else {}),
            "parallel": self.strategy.model_dump(),
            "by_host": self.by_host,
            **({"split": [end - start for start, end in parts]} if self.strategy.splits_batches else {}),
        }


def _merge(compiler: Compiler, name: str, others: Sequence[Any], workers: int) -> None:
    """Give a state of the first worker what each of another number of workers is to have of that of all before."""
    parts = workers if compiler.info[name].role == "residual" else 1 + len(others)
    compiler.states.assign(name, mean(compiler.states[name], others, parts))


def mean(first: Any, others: Sequence[Any], parts: int) -> Any:
    """One of so many parts of the sum of what workers have; of what is no float, the first one's."""
    if first.dtype.kind != "f":
        return first
    return (sum(others, first.astype(np.float64)) / parts).astype(first.dtype)


class _States:
    """A compiler's states as a strategy sees them."""

    def __init__(self, compiler: Compiler) -> None:
        self.names, self.read, self.write = compiler.names, compiler.states.__getitem__, compiler.states.assign


class AskedOfServers:
    """The answer of servers: whether anybody was asked to stop, or to write a checkpoint."""

    def __init__(self, servers: Connection, step: int) -> None:
        self._servers, self._step = servers, step

    @property
    def stop(self) -> bool:
        """To stop after this step, or an earlier one."""
        return self._servers.stops(self._step)

    @property
    def snapshot(self) -> bool:
        """To write a checkpoint after this step."""
        return self._servers.snapshots(self._step)


class Asked:
    """A question that is under way: whether anybody was asked to stop, or to write a checkpoint."""

    def __init__(self, workers: Communicator, signals: Signals, *, meets: bool) -> None:
        """Where the workers do not meet at this step nobody is asked, and nothing done."""
        self._signals, self._alone, self._votes = signals, workers.size == 1, np.zeros(2, np.float32)
        self._workers = workers if meets and not self._alone else None
        if self._workers is not None:
            workers.finish(Asked)  # of a batch in the midst of a step, after which nobody stops
            self._votes = np.array([signals.stop is not None, signals.snapshot], np.float32)
            workers.under_way[Asked] = [workers.start_all_reduce(self._votes)]

    @property
    def stop(self) -> bool:
        """To stop; of one worker alone, as it is now."""
        return self._signals.stop is not None if self._alone else self._voted(0)

    @property
    def snapshot(self) -> bool:
        """To write a checkpoint; of one worker alone, as it is now."""
        return self._signals.snapshot if self._alone else self._voted(1)

    def _voted(self, question: int) -> bool:
        if self._workers is not None:
            self._workers.finish(Asked)
        return bool(self._votes[question])
