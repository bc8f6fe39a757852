"""A page in headless Chromium, driven through its DevTools protocol; `make browser` installs Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
TIMEOUT = 30.0
"""Seconds to wait for a condition on a page."""


class Page:
    """A browser tab. Messages of the protocol pass through two pipes, each terminated by a zero byte."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._session: str | None = None
        self._number = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.errors: list[str] = []
        """Uncaught errors of scripts, and requests that the browser blocked."""
        self.requests: list[str] = []
        """Addresses that pages requested, without those that contain their content (`data:`, `blob:`)."""
        for domain in ("Page", "Runtime", "Log", "DOM", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        session = {} if self._session is None else {"sessionId": self._session}
        self._requests.write(json.dumps({**message, **session}).encode() + b"\0")
        self._requests.flush()
        while (answer := self._read()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        content = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            content += byte
        message: dict[str, Any] = json.loads(content)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(event["params"]["exceptionDetails"]))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.errors.append(event["params"]["entry"]["text"])
        if event.get("method") == "Network.requestWillBeSent":
            address = event["params"]["request"]["url"]
            self.requests += [] if address.startswith(("data:", "blob:")) else [address]

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in JavaScript; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression in JavaScript is true."""
        end = time.monotonic() + TIMEOUT
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"{condition}; the page shows: {self.evaluate('document.body.innerText')}"
            time.sleep(0.05)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse button at a point of the window, move to another, and release it."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            button = {"button": "left", "buttons": 1, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def set_window(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window in pixels, and the color scheme that the reader prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Write the window as a PNG file."""
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def choose_file(self, selector: str, file: Path) -> None:
        """Choose a file in an input of a form."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)


@contextmanager
def chromium() -> Iterator[Page]:
    """Start Chromium with an empty profile, and yield a page."""
    assert PROGRAM is not None
    from_us, requests = os.pipe()
    answers, to_us = os.pipe()
    # The protocol reads file descriptor 3 and writes 4.
    script = f'exec "$@" 3<&{from_us} 4>&{to_us}'
    with TemporaryDirectory(prefix="netspec-chromium-", ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command], pass_fds=(from_us, to_us), stderr=subprocess.DEVNULL
        )
        os.close(from_us)
        os.close(to_us)
        try:
            with os.fdopen(requests, "wb") as sending, os.fdopen(answers, "rb") as receiving:
                yield Page(sending, receiving)
        finally:
            process.terminate()
            process.wait(20)
