"""The folder for files of ONNX's runner, and a summary of passed cases at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def _folder_of_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("onnx")))
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each of ONNX's suites."""
    counts: dict[str, Counter[str]] = {}
    for state in ("passed", "skipped", "failed"):
        for report in terminalreporter.stats.get(state, []):
            _, marker, case = report.nodeid.partition("::OnnxBackend")
            if marker:
                counts.setdefault(case.partition("ModelTest")[0], Counter())[state] += 1
    for suite, states in sorted(counts.items()):
        total = states.total()
        terminalreporter.write_line(
            f"onnx.backend.test, {suite}: {states['passed']} of {total} pass, {states['skipped']} are excluded "
            f"(-rs says why), {states['failed']} fail"
        )
