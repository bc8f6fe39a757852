"""The watchdog: a thread of every worker that ends the job when one of them no longer answers, or fails.

Workers form a ring. Each sends the next one a heartbeat every second, with its step and its activity; if a worker stays
silent, the next one reports it and ends the job. A worker that is alive but hangs is found by a worker that waits too
long: it asks all, and names those that are not waiting. A worker that fails reports to worker 0, which prints equal
reports once. Without the watchdog a job would wait forever in its next all-reduce.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, NoReturn, Protocol, TextIO, TypeAlias

from netspec.distributed.launcher import control_socket
from netspec.distributed.monitoring.activity import ACTIVITY, STARTING
from netspec.distributed.monitoring.failure_reports import FailureReport, FailureReports, resume_hint

Told: TypeAlias = dict[str, Any]
"""A letter: plain data that JSON holds. Its `kind` is beat, bye, broken, words, ask or answer."""

HEARTBEAT, STALL = 20.0, 600.0
"""Seconds of silence after which a worker is given up, and of waiting in vain for those that answer, until a training
says otherwise."""
TICK, BEAT_EVERY = 0.1, 1.0
"""Seconds between two checks for messages, and between two heartbeats."""
ANSWERS_WITHIN = 3.0
"""Seconds in which all workers must report their activity."""
HEARD_WITHIN = 5.0
"""Seconds after which a failing worker reports its failure itself, if worker 0 did not."""
NAMED = 5
"""Largest number of workers that a message names."""


class Mailbox(Protocol):
    """Exchanges messages between the watchdogs."""

    rank: int
    size: int

    def send(self, to: int, told: Told) -> None:
        """Send without waiting for it to arrive."""

    def receive(self) -> tuple[int, Told] | None:
        """Return the next message with the rank of its sender, if one has arrived."""


class Watchdog:
    """Watches the other workers on behalf of one worker."""

    def __init__(self, post: Mailbox, abort: Callable[[int], NoReturn], everyone: Sequence[Told]) -> None:
        """`everyone`: `host` and `pid` of each worker."""
        self._post, self._abort, self._everyone = post, abort, everyone
        self._rank, self._size = post.rank, post.size
        self._silence, self._stall = HEARTBEAT, STALL
        self._heard_at = self._ticked_at = time.monotonic()
        self._beat_at = 0.0
        self._previous: Told = {"rank": (self._rank - 1) % self._size}
        """The last message of the previous rank."""
        self._answers: dict[int, Told] | None = None
        """Of all, while they are asked."""
        self._asked_at = 0.0
        self._leaving = threading.Event()
        self._said_bye = self._heard_bye = self._ended = False
        self._own: FailureReport | None = None
        self._breaks_off: list[Told] = []
        """Failures still to announce: the training in which a worker failed, and the number of workers to inform."""
        self._words = FailureReports(self._size)
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Watch from now on, until all have left."""
        self._thread.start()
        threading.Thread(target=self._guard, name="guard", daemon=True).start()
        atexit.register(self._finish)  # ahead of MPI's own end, which comes when Python has gone

    def set_timeouts(self, silence: float, stall: float) -> None:
        """Give up a worker after other times: seconds of silence, and of waiting for it."""
        self._silence, self._stall = silence, stall

    def announce_failure(self, workers: int) -> None:
        """Inform the first `workers` workers that one has failed: they stop waiting for it and save a checkpoint."""
        self._breaks_off.append({"training": ACTIVITY.trainings, "workers": workers})  # the thread announces it

    def fail(self, status: int, *, error: str, output: str) -> NoReturn:
        """End the job with an exit status, since this worker fails or was stopped, and ensure that it is reported.

        `error` and `output` are for the error stream and the standard output.
        """
        words = FailureReport(self._rank, self._everyone[self._rank]["host"], status, error, output)
        self._own = words  # the thread says it
        self._thread.join(HEARD_WITHIN if self._rank else None)
        alone = FailureReports(self._size)
        alone.take(words)
        self._tell(alone)

    def _finish(self) -> None:
        """This worker is done: say so, and go on watching until the one before it is done too."""
        ACTIVITY.doing = "done"
        self._leaving.set()
        self._thread.join()

    def _guard(self) -> None:
        """End this process where MPI hangs, and the watchdog in it, as it may in a send to a host that is gone."""
        looked = time.monotonic()
        while self._thread.is_alive():
            time.sleep(BEAT_EVERY)
            now = time.monotonic()
            if now - looked > self._silence / 2:  # this process itself was stopped
                self._ticked_at = now
            looked = now
            if now - self._ticked_at > 1.5 * self._silence:
                if not self._ended:
                    self._say(f"MPI has not answered {self._named(self._facts())} for {1.5 * self._silence:g} s")
                control_socket.report_exit(1)
                os._exit(1)

    def _run(self) -> None:
        try:
            while not (self._said_bye and self._heard_bye):
                self._tick(time.monotonic())
                time.sleep(TICK)
        except Exception as error:  # of MPI, which has lost a worker
            self._end(f"{self._named(self._facts())} has lost the others: {' '.join(str(error).split())}")

    def _tick(self, now: float) -> None:
        if now - self._ticked_at > self._silence / 2:  # this process itself was stopped: it could hear nobody
            self._heard_at = now
        self._ticked_at = now
        while (letter := self._post.receive()) is not None:
            self._take(*letter, now)
        if now - self._beat_at >= BEAT_EVERY and not self._said_bye:
            self._beat_at, self._said_bye = now, self._leaving.is_set()
            kind = "bye" if self._said_bye else "beat"
            self._post.send((self._rank + 1) % self._size, {"kind": kind, **self._facts()})
        if not self._heard_bye and now - self._heard_at > self._silence:
            self._end(f"{self._named(self._previous)} has not answered for {self._silence:g} s")
        self._look_for_a_stall(now)
        self._pass_words_on()

    def _take(self, sender: int, told: Told, now: float) -> None:
        match told.pop("kind"):
            case "broken":
                late = told["training"] != ACTIVITY.trainings
                if ACTIVITY.gives_up_at == inf and not late:  # else those that were torn apart meet again already
                    ACTIVITY.gives_up_at = now
            case "words":
                self._words.take(FailureReport(**told))
            case "ask":
                self._post.send(sender, {"kind": "answer", **self._facts()})
            case "answer":
                if self._answers is not None:
                    self._answers[sender] = told
            case kind:  # of the one before
                self._previous, self._heard_at, self._heard_bye = told, now, kind == "bye"

    def _look_for_a_stall(self, now: float) -> None:
        """Ask what all are at, once this worker has waited too long; of several that wait the first one asks first.

        For one that has ended nobody waits longer than for one that is silent.
        """
        patience = min(self._silence, self._stall) if self._heard_bye else self._stall
        if ACTIVITY.waited() <= patience * (1 + self._rank / 10):
            self._answers = None
        elif self._answers is None:
            self._answers, self._asked_at = {self._rank: self._facts()}, now
            for other in range(self._size):
                if other != self._rank:
                    self._post.send(other, {"kind": "ask"})
        elif len(self._answers) == self._size or now - self._asked_at > ANSWERS_WITHIN:
            silent = [self._named({"rank": one}) for one in range(self._size) if one not in self._answers]
            busy = [self._named(one) for _, one in sorted(self._answers.items()) if not one["waits"]]
            found = silent + busy
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            who = ", ".join(found[:NAMED]) + more if found else "nobody: each waits for something else"
            self._end(f"{self._named(self._facts())} has waited for {ACTIVITY.waited():.0f} s, for {who}")

    def _pass_words_on(self) -> None:
        while self._breaks_off:
            failed = self._breaks_off.pop()
            for other in range(failed["workers"]):
                if other != self._rank:
                    self._post.send(other, {"kind": "broken", "training": failed["training"]})
        if self._own is not None:
            if self._rank:
                self._post.send(0, {"kind": "words", **self._own.as_json()})
            else:
                self._words.take(self._own)
            self._own = None
        if self._words.complete(ACTIVITY.waited()):
            self._tell(self._words)

    def _facts(self) -> Told:
        """Return the activity of this worker."""
        return {
            "rank": self._rank,
            "step": ACTIVITY.step,
            "doing": ACTIVITY.doing,
            "waits": ACTIVITY.waiting_since is not None,
        }

    def _named(self, facts: Told) -> str:
        """Which worker it is, and what is last known of it."""
        who, at = self._everyone[facts["rank"]], ""
        if "step" in facts:
            at = f"; last known: step {facts['step']:,}, {facts['doing']}{', waiting for others' * facts['waits']}"
        return f"rank {facts['rank']} (host {who['host']}, pid {who['pid']}{at})"

    def _end(self, message: str) -> NoReturn:
        """End the job because it can't continue."""
        self._say(message)
        self._ended = True
        self._abort(1)

    def _say(self, message: str) -> None:
        if control_socket.is_connected():  # the command at its other end tells it
            control_socket.send_facts(failure=message)
        else:
            again = resume_hint(ACTIVITY.run_dir, [])
            _write(sys.stderr, f"error: {message}" + (f"\n  hint: {again}" if again else ""))

    def _tell(self, words: FailureReports) -> NoReturn:
        again = resume_hint(ACTIVITY.run_dir, control_socket.start_arguments(len(self._everyone)))
        output, error, status = words.tell(again, begun=ACTIVITY.doing != STARTING)
        _write(sys.stdout, output)
        _write(sys.stderr, error)
        self._ended = True
        self._abort(status)


def _write(stream: TextIO | None, text: str) -> None:
    if text and stream is not None:
        with suppress(OSError):  # nobody takes it
            stream.write(text.rstrip("\n") + "\n")
            stream.flush()
