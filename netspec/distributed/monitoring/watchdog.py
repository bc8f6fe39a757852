"""The watchdog: a thread of every worker that ends the job when one of them no longer answers, or fails.

Workers form a ring. Each sends the next one a heartbeat every second, with its step and its activity; if a worker stays
silent, the next one reports it and ends the job. If a worker is alive but hangs, another worker waits too long: that
one asks all workers, and names those that are not waiting. A worker that fails reports to worker 0, which prints equal
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

WatchdogMessage: TypeAlias = dict[str, Any]
"""A message as JSON data. Its `kind` is beat, bye, failure, report, ask or answer."""

HEARTBEAT, STALL = 20.0, 600.0
"""Seconds of silence after which a worker counts as dead, and of waiting for workers that answer; a training run sets
its own values."""
TICK_INTERVAL, HEARTBEAT_INTERVAL = 0.1, 1.0
"""Seconds between two checks for messages, and between two heartbeats."""
ANSWER_TIMEOUT = 3.0
"""Seconds that workers have to report their activity."""
REPORT_TIMEOUT = 5.0
"""Seconds after which a failing worker reports its failure itself, if worker 0 did not."""
MAX_NAMED = 5
"""Largest number of workers that a message names."""


class Mailbox(Protocol):
    """Exchanges messages between the watchdogs."""

    rank: int
    size: int

    def send(self, to: int, message: WatchdogMessage) -> None:
        """Send without waiting for it to arrive."""

    def receive(self) -> tuple[int, WatchdogMessage] | None:
        """Return the next message with the rank of its sender, if one has arrived."""


class Watchdog:
    """Watches the other workers on behalf of one worker."""

    def __init__(self, post: Mailbox, abort: Callable[[int], NoReturn], everyone: Sequence[WatchdogMessage]) -> None:
        """`everyone`: `host` and `pid` of each worker."""
        self._mailbox, self._abort, self._workers = post, abort, everyone
        self._rank, self._size = post.rank, post.size
        self._silence, self._stall = HEARTBEAT, STALL
        self._heard_at = self._ticked_at = time.monotonic()
        self._beat_at = 0.0
        self._previous: WatchdogMessage = {"rank": (self._rank - 1) % self._size}
        """The last message of the previous rank."""
        self._answers: dict[int, WatchdogMessage] | None = None
        """Answers of all workers by rank, while they are asked."""
        self._asked_at = 0.0
        self._done = threading.Event()
        self._sent_bye = self._received_bye = self._ended = False
        self._own_report: FailureReport | None = None
        self._failures_to_announce: list[WatchdogMessage] = []
        """Failures still to announce: the training in which a worker failed, and the number of workers to inform."""
        self._reports = FailureReports(self._size)
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start the watchdog, which ends when all workers are done."""
        self._thread.start()
        threading.Thread(target=self._guard, name="guard", daemon=True).start()
        atexit.register(self._finish)  # runs before MPI finalizes

    def set_timeouts(self, silence: float, stall: float) -> None:
        """Set how many seconds a worker may be silent, or keep others waiting, before the job ends."""
        self._silence, self._stall = silence, stall

    def announce_failure(self, workers: int) -> None:
        """Inform the first `workers` workers that one has failed: they stop waiting for it and save a checkpoint."""
        # The thread announces it.
        self._failures_to_announce.append({"training": ACTIVITY.trainings, "workers": workers})

    def fail(self, status: int, *, error: str, output: str) -> NoReturn:
        """Report that this worker failed or was stopped, and end the job with an exit status.

        `error` and `output` are for the error stream and the standard output.
        """
        report = FailureReport(self._rank, self._workers[self._rank]["host"], status, error, output)
        self._own_report = report  # the thread sends it
        self._thread.join(REPORT_TIMEOUT if self._rank else None)
        alone = FailureReports(self._size)
        alone.add(report)
        self._print_and_abort(alone)

    def _finish(self) -> None:
        """Announce that this worker is done, and watch until the previous rank is done too."""
        ACTIVITY.doing = "done"
        self._done.set()
        self._thread.join()

    def _guard(self) -> None:
        """End this process if the watchdog hangs in MPI, such as in a send to a host that is gone."""
        looked = time.monotonic()
        while self._thread.is_alive():
            time.sleep(HEARTBEAT_INTERVAL)
            now = time.monotonic()
            if now - looked > self._silence / 2:  # this process itself was stopped
                self._ticked_at = now
            looked = now
            if now - self._ticked_at > 1.5 * self._silence:
                if not self._ended:
                    self._report_job_failure(
                        f"MPI has not answered {self._describe(self._activity())} for {1.5 * self._silence:g} s"
                    )
                control_socket.report_exit(1)
                os._exit(1)

    def _run(self) -> None:
        try:
            while not (self._sent_bye and self._received_bye):
                self._tick(time.monotonic())
                time.sleep(TICK_INTERVAL)
        except Exception as error:  # raised by MPI, which has lost a worker
            self._end(f"{self._describe(self._activity())} has lost the others: {' '.join(str(error).split())}")

    def _tick(self, now: float) -> None:
        if now - self._ticked_at > self._silence / 2:  # this process itself was stopped, and could not receive
            self._heard_at = now
        self._ticked_at = now
        while (received := self._mailbox.receive()) is not None:
            self._handle(*received, now)
        if now - self._beat_at >= HEARTBEAT_INTERVAL and not self._sent_bye:
            self._beat_at, self._sent_bye = now, self._done.is_set()
            kind = "bye" if self._sent_bye else "beat"
            self._mailbox.send((self._rank + 1) % self._size, {"kind": kind, **self._activity()})
        if not self._received_bye and now - self._heard_at > self._silence:
            self._end(f"{self._describe(self._previous)} has not answered for {self._silence:g} s")
        self._find_stall(now)
        self._send_reports()

    def _handle(self, sender: int, message: WatchdogMessage, now: float) -> None:
        match message.pop("kind"):
            case "failure":
                late = message["training"] != ACTIVITY.trainings
                if ACTIVITY.gives_up_at == inf and not late:  # otherwise the workers are already regrouping
                    ACTIVITY.gives_up_at = now
            case "report":
                self._reports.add(FailureReport(**message))
            case "ask":
                self._mailbox.send(sender, {"kind": "answer", **self._activity()})
            case "answer":
                if self._answers is not None:
                    self._answers[sender] = message
            case kind:  # a heartbeat of the previous rank
                self._previous, self._heard_at, self._received_bye = message, now, kind == "bye"

    def _find_stall(self, now: float) -> None:
        """Ask all workers for their activity, when this worker has waited too long; lower ranks ask earlier.

        A worker that is done is waited for no longer than a silent one.
        """
        patience = min(self._silence, self._stall) if self._received_bye else self._stall
        if ACTIVITY.waited() <= patience * (1 + self._rank / 10):
            self._answers = None
        elif self._answers is None:
            self._answers, self._asked_at = {self._rank: self._activity()}, now
            for other in range(self._size):
                if other != self._rank:
                    self._mailbox.send(other, {"kind": "ask"})
        elif len(self._answers) == self._size or now - self._asked_at > ANSWER_TIMEOUT:
            silent = [self._describe({"rank": rank}) for rank in range(self._size) if rank not in self._answers]
            busy = [self._describe(facts) for _, facts in sorted(self._answers.items()) if not facts["waits"]]
            culprits = silent + busy
            more = f" and {len(culprits) - MAX_NAMED} more" if len(culprits) > MAX_NAMED else ""
            named = ", ".join(culprits[:MAX_NAMED]) + more if culprits else "no worker: each waits for something else"
            self._end(f"{self._describe(self._activity())} has waited for {ACTIVITY.waited():.0f} s, for {named}")

    def _send_reports(self) -> None:
        while self._failures_to_announce:
            failed = self._failures_to_announce.pop()
            for other in range(failed["workers"]):
                if other != self._rank:
                    self._mailbox.send(other, {"kind": "failure", "training": failed["training"]})
        if self._own_report is not None:
            if self._rank:
                self._mailbox.send(0, {"kind": "report", **self._own_report.as_json()})
            else:
                self._reports.add(self._own_report)
            self._own_report = None
        if self._reports.is_complete(ACTIVITY.waited()):
            self._print_and_abort(self._reports)

    def _activity(self) -> WatchdogMessage:
        """Return the activity of this worker."""
        return {
            "rank": self._rank,
            "step": ACTIVITY.step,
            "doing": ACTIVITY.doing,
            "waits": ACTIVITY.waiting_since is not None,
        }

    def _describe(self, facts: WatchdogMessage) -> str:
        """Return rank, host and process id of a worker, and its last known activity."""
        worker, at = self._workers[facts["rank"]], ""
        if "step" in facts:
            at = f"; last known: step {facts['step']:,}, {facts['doing']}{', waiting for others' * facts['waits']}"
        return f"rank {facts['rank']} (host {worker['host']}, pid {worker['pid']}{at})"

    def _end(self, message: str) -> NoReturn:
        """End the job because it can't continue."""
        self._report_job_failure(message)
        self._ended = True
        self._abort(1)

    def _report_job_failure(self, message: str) -> None:
        if control_socket.is_connected():  # the launching command prints the message
            control_socket.send_facts(failure=message)
        else:
            resume = resume_hint(ACTIVITY.run_dir, [])
            _write(sys.stderr, f"error: {message}" + (f"\n  hint: {resume}" if resume else ""))

    def _print_and_abort(self, reports: FailureReports) -> NoReturn:
        resume = resume_hint(ACTIVITY.run_dir, control_socket.start_arguments(len(self._workers)))
        output, error, status = reports.summarize(resume, started=ACTIVITY.doing != STARTING)
        _write(sys.stdout, output)
        _write(sys.stderr, error)
        self._ended = True
        self._abort(status)


def _write(stream: TextIO | None, text: str) -> None:
    if text and stream is not None:
        with suppress(OSError):  # nobody reads the stream
            stream.write(text.rstrip("\n") + "\n")
            stream.flush()
