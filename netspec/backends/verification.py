"""Verify a device in a separate process, which may crash or hang, and store the result.

A kernel that never ends can only be stopped together with its process. This module starts the process, follows the
checks that it reports line by line, and starts another one for the remaining checks if it crashes or hangs. The program
`netspec.tools.verification` runs the checks.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from queue import Empty, Queue
from signal import Signals
from threading import Thread
from typing import Any, Literal, TypeAlias

from netspec.backends.device import Device
from netspec.backends.disk_cache import open_cache
from netspec.backends.launcher_env import clean_environment
from netspec.backends.notices import wait_notices
from netspec.backends.process_group import world

PROGRAM = ("-P", "-m", "netspec.tools.verification")
"""Arguments of Python for the program that runs the checks: it needs the samples of layers, and the compiler."""
SWITCH = "NETSPEC_VERIFY"
"""Environment variable: `off` skips the check of a GPU that is used for the first time."""
REPORT = "please report it with the output of `netspec devices --verify --device {} --json`"
SOURCES = Path(__file__).parent
"""Folder of the kernels' sources."""


@dataclass(frozen=True)
class TimeLimits:
    """Time that checks may take, in seconds."""

    total: float
    """All checks together; checks that do not fit are skipped."""
    call: float
    """Time without progress after which a check counts as hung."""


QUICK, FULL = TimeLimits(20, 6), TimeLimits(3600, 120)
CheckKind: TypeAlias = Literal["kernel", "training"]


@dataclass(frozen=True)
class DeviceCheck:
    """The result of checking a kernel, or of a training run."""

    name: str
    """Label of the kernel, or the name of the training run: `training of the sequence net in bfloat16`."""
    kind: CheckKind
    status: Literal["passed", "failed", "skipped"]
    calls: int = 0
    """Number of calls, in different layouts and element types, or of training runs."""
    reason: str | None = None
    """Why it failed or was skipped."""

    @property
    def disabled_reason(self) -> str | None:
        """Return why a kernel must not be used; None if it may be, or if it is a reference kernel, the last resort."""
        if self.status != "failed" or self.kind != "kernel" or self.name.startswith("reference:"):
            return None
        return f"it failed the check of this device: {self.reason}"


@dataclass(frozen=True)
class Verification:
    """The checks of a device."""

    device: str
    quick: bool
    """Whether it was the short form: one call per op and layout, and one training run."""
    checks: tuple[DeviceCheck, ...]
    seconds: float
    problem: str | None = None
    """Why checks could not run; None if they did."""
    final: bool = field(default=True, compare=False)
    """Whether the result depends on the machine only, and not on what else was running on it."""

    @property
    def failed(self) -> list[DeviceCheck]:
        """The checks that failed."""
        return [check for check in self.checks if check.status == "failed"]

    @property
    def passed(self) -> bool:
        """Whether all checks ran and none failed."""
        return self.problem is None and not self.failed

    @property
    def disabled_kernels(self) -> dict[str, str]:
        """Reasons why kernels must not be used, by label."""
        return {check.name: check.disabled_reason for check in self.failed if check.disabled_reason is not None}

    @property
    def distrust_reason(self) -> str | None:
        """Why training steps can't be trusted, although failed kernels are disabled; None if they can."""
        bad = [f"{check.name} failed: {check.reason}" for check in self.failed if check.kind == "training"]
        return next(iter(bad), self.problem)

    def summary(self) -> str:
        """The result in one line."""
        counts = {status: sum(check.status == status for check in self.checks) for status in ("passed", "failed")}
        skipped = len(self.checks) - sum(counts.values())
        parts = [f"{counts['passed']} checks passed", f"{counts['failed']} failed", f"{skipped} skipped"]
        return self.problem or f"{', '.join(parts)} in {self.seconds:.0f} s"

    def warnings(self) -> list[str]:
        """Return a message for users of the device: the failures, the disabled kernels, and how to report them."""
        device, report = f"`{self.device}`", REPORT.format(self.device)
        result = [f"{check.name} {_verdict(check)} the check of {device}: {check.reason}" for check in self.failed]
        result += [f"{device} could not be checked: {self.problem}"] if self.problem else []
        return [f"{text}; {report}" for text in result]

    def rejection(self) -> str:
        """The message that reports why `auto` does not choose the device."""
        report = REPORT.format(self.device)
        return f"running on the CPU, not on a GPU: `{self.device}` failed its check: {self.distrust_reason}; {report}"

    def facts(self) -> dict[str, Any]:
        """Return the result for the log of a run: without the checks that passed."""
        return {**self.as_json(), "checks": [asdict(check) for check in self.checks if check.status != "passed"]}

    def as_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "device": self.device, "quick": self.quick, "passed": self.passed, "seconds": round(self.seconds, 1),
            "problem": self.problem, "checks": [asdict(check) for check in self.checks],
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Verification:
        """The inverse of `as_json`."""
        checks = tuple(DeviceCheck(**check) for check in data["checks"])
        return cls(data["device"], data["quick"], checks, data["seconds"], data["problem"])


def _verdict(check: DeviceCheck) -> str:
    return "failed" if check.disabled_reason is None else "is disabled, because it failed"


def verify(
    device: str,
    *,
    quick: bool = False,
    only: str = "",
    on_check: Callable[[DeviceCheck], object] = lambda check: None,
    limits: TimeLimits | None = None,
    program: Sequence[str] = PROGRAM,
) -> Verification:
    """Check the kernels of a device on samples against the reference, and small training runs against the CPU.

    `only` selects checks whose names contain it. `on_check` is called with each result.
    """
    request = {"device": device, "quick": quick, "only": only}
    supervisor = _Supervisor(request, limits or (QUICK if quick else FULL), on_check, program)
    while supervisor.run_process():
        pass
    return supervisor.result()


class _Supervisor:
    """Runs processes until all checks have a result or the time is up."""

    def __init__(
        self,
        request: dict[str, Any],
        limits: TimeLimits,
        on_check: Callable[[DeviceCheck], object],
        program: Sequence[str],
    ) -> None:
        self._request, self._limits, self._on_check, self._program = request, limits, on_check, program
        self._began = time.monotonic()
        self._planned: list[tuple[str, CheckKind]] = []
        self._done: dict[str, DeviceCheck] = {}
        self._problem: str | None = None
        self._is_final = True

    def result(self) -> Verification:
        """The results of all checks; those that did not run are skipped."""
        late = f"no time was left of {self._limits.total:.0f} s"
        checks = [
            self._done.get(name) or DeviceCheck(name, kind, "skipped", reason=self._problem or late)
            for name, kind in self._planned
        ]
        seconds, is_final = time.monotonic() - self._began, self._is_final and self._problem is None
        return Verification(
            self._request["device"], self._request["quick"], tuple(checks), seconds, self._problem, is_final
        )

    def run_process(self) -> bool:
        """Start a process for the checks without a result; return whether a new process must continue."""
        seconds = self._left() - self._limits.call  # leaves time to detect that the last check hangs
        if seconds <= 0:
            return False
        done = {name: asdict(check) for name, check in self._done.items()}
        request = json.dumps({**self._request, "seconds": seconds, "done": done})
        with tempfile.TemporaryFile() as messages:
            process = subprocess.Popen(
                [sys.executable, *self._program, request],
                stdout=subprocess.PIPE, stderr=messages, stdin=subprocess.DEVNULL, text=True, encoding="utf-8",
                env={**clean_environment(os.environ), SWITCH: "off"},
            )  # fmt: skip
            events: Queue[dict[str, Any] | None] = Queue()
            reader = Thread(target=_read_lines, args=(process.stdout, events), daemon=True)
            reader.start()
            try:
                return self._handle_events(events, lambda: _exit_reason(process, messages))
            finally:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # a call of the driver may not end
                    process.wait(5)
                reader.join(5)

    def _left(self) -> float:
        return self._began + self._limits.total - time.monotonic()

    def _handle_events(self, events: Queue[dict[str, Any] | None], exit_reason: Callable[[], str]) -> bool:
        """Handle the events of a process; return whether a new process must continue."""
        current: tuple[str, CheckKind] | None = None
        call, wait = "", self._left()
        while True:
            try:
                event = events.get(timeout=max(0.0, wait))
            except Empty:
                return self._record_crash(current, call, f"no answer in {wait:.0f} s")
            wait = self._limits.call
            if event is None:
                return self._record_crash(current, call, exit_reason())
            match event["event"]:
                case "unusable":
                    self._problem = event["reason"]
                    return False
                case "plan":
                    self._planned = [(name, kind) for name, kind in event["checks"]]
                case "begin":
                    current, call = (event["name"], event["kind"]), ""
                case "call":
                    call = event["call"]
                case "check":
                    self._record(DeviceCheck(**event["check"]))
                    self._is_final = self._is_final and not event["transient"]
                    current = None
                case "restart":
                    return True
                case "done":
                    return False

    def _record_crash(self, current: tuple[str, CheckKind] | None, call: str, reason: str) -> bool:
        """Record a crash or a hang; return whether to continue with the other checks."""
        if current is None:
            self._problem = reason
            return False
        self._record(DeviceCheck(*current, "failed", reason=f"{call}: {reason}" if call else reason))
        return True

    def _record(self, check: DeviceCheck) -> None:
        self._done[check.name] = check
        self._on_check(check)


def _read_lines(stream: Any, events: Queue[dict[str, Any] | None]) -> None:
    """Put the events that are written to a stream into a queue, and None at its end."""
    with stream, contextlib.suppress(ValueError):  # a killed process may leave an incomplete line
        for line in stream:
            events.put(json.loads(line))
    events.put(None)


def _exit_reason(process: subprocess.Popen[str], messages: Any) -> str:
    try:
        status = process.wait(5)
    except subprocess.TimeoutExpired:
        return "the process stopped answering"
    messages.seek(0)
    lines = messages.read().decode("utf-8", "replace").strip().splitlines()
    detail = f": {lines[-1].strip()[:300]}" if lines else ""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"the process was killed by {Signals(-status).name}{detail}"
    return f"the process ended with status {status}{detail}"


def verified_on_first_use(device: Device) -> Verification | None:
    """The stored verification of a device, or a short one that runs now; None if verification is switched off.

    The results of all workers are merged, so that all use the same kernels.
    """
    if os.environ.get(SWITCH) == "off":
        return None
    mine = stored(device)
    if mine is None:
        wait_notices.announce_check(device.address, QUICK.total)
        mine = verify(device.address, quick=True)
        store_result(device, mine)
    return _merged(world().all_gather_objects(mine.as_json()))


def stored(device: Device) -> Verification | None:
    """The stored verification of a device; None if there is none."""
    return _read(open_cache("verification").read(_file(device)))


def store_result(device: Device, result: Verification) -> None:
    """Store a verification, unless it depends on what else was running on the machine."""
    if result.final:
        open_cache("verification").write(_file(device), json.dumps(result.as_json()).encode())


def _read(content: bytes | None) -> Verification | None:
    return None if content is None else Verification.from_json(json.loads(content))


def _merged(reports: Sequence[dict[str, Any]]) -> Verification:
    """The result for all workers: a failure on one worker counts for all."""
    results = [Verification.from_json(report) for report in reports]
    order = {"failed": 0, "skipped": 1, "passed": 2}
    checks: dict[str, DeviceCheck] = {}
    for check in sorted(
        (check for result in results for check in result.checks), key=lambda check: order[check.status]
    ):
        checks.setdefault(check.name, check)
    problem = next((result.problem for result in results if result.problem is not None), None)
    first = results[0]
    return Verification(first.device, first.quick, tuple(checks.values()), first.seconds, problem)


def _file(device: Device) -> str:
    """Name of the file of a device: a different model, driver, library or version of netspec has a different file."""
    key = [device.name, device.identity(), sorted(device.descriptions().items()), version("netspec"), _sources()]
    return f"{sha256(json.dumps(key).encode()).hexdigest()[:32]}.json"


def _sources() -> str:
    """Hash of the sources of all kernels, which change between versions in a development tree."""
    digest = sha256()
    for path in sorted(_source_files()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _source_files() -> Iterator[Path]:
    for pattern in ("*.py", "*.cuh"):
        yield from SOURCES.rglob(pattern)
