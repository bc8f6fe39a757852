"""Run ONNX's own tests on netspec, with tables of the cases that are expected to fail, and why."""

from __future__ import annotations

import functools
import re
import unittest
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar

import yaml
from onnx.backend.test import BackendTest
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from netspec import OnnxBackend
from tests.exchange.backend.fast_cases import load_node_cases

load_node_cases()

SUITES = {"node": "Node", "simple": "Simple", "real": "Real"}
"""ONNX's folders of cases, and the part of the names of test classes in its runner: `OnnxBackend…ModelTest`.

Those of `pytorch-converted` and `pytorch-operator` are written in opset 6; netspec reads 7 and newer.
"""
EXCLUDED, PENDING = (Path(__file__).with_name(name) for name in ("excluded.yaml", "pending.yaml"))
"""The cases that netspec is not meant to run, and those that it does not run yet. `report.py` writes the latter."""


class Reference(OnnxBackend):
    """netspec with the reference kernels, since compiling kernels does not pay off for a case that runs once.

    Other tests compare all other kernels with these.
    """

    devices: ClassVar[Mapping[str, str]] = {"CPU": "reference"}


class Fast(OnnxBackend):
    """netspec with its default kernels, for complete models."""

    devices: ClassVar[Mapping[str, str]] = {"CPU": "cpu"}


def backend_of(suite: str) -> type[OnnxBackend]:
    """Return the backend that runs the cases of a suite."""
    return Fast if suite == "real" else Reference


@dataclass(frozen=True)
class Exclusion:
    """Cases that fail for the same reason, as regular expressions of their names."""

    reason: str
    cases: tuple[str, ...]
    outside: bool
    """Whether the cases are outside of netspec's scope: not operators of neural networks on floats or integers."""
    origin: Path
    """The table that contains the exclusion."""

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(case for case in self.cases if case.isidentifier())

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(case) for case in self.cases if not case.isidentifier()]

    def covers(self, case: str) -> bool:
        """Whether the exclusion applies to a case."""
        return case in self._names or any(pattern.fullmatch(case) for pattern in self._patterns)

    def unused(self, names: Collection[str]) -> list[str]:
        """Return the names that match no case."""
        patterns = [pattern.pattern for pattern in self._patterns if not any(map(pattern.fullmatch, names))]
        return [*sorted(self._names.difference(names)), *patterns]


@cache
def exclusions() -> tuple[Exclusion, ...]:
    """Load the tables `excluded.yaml` and `pending.yaml`."""
    return tuple(
        Exclusion(entry["reason"], tuple(entry["cases"]), entry.get("outside", False), path)
        for path in (EXCLUDED, PENDING)
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")) or ()
    )


def why_excluded(case: str) -> Exclusion | None:
    """Return the exclusion that applies to a case."""
    return next((exclusion for exclusion in exclusions() if exclusion.covers(case)), None)


def cases() -> Iterator[tuple[str, TestCase]]:
    """Yield every case with its suite."""
    for suite in SUITES:
        for case in load_model_tests(kind=suite):
            yield suite, case


def standard_tests(module: str) -> dict[str, type]:
    """Return ONNX's test classes, on the CPU; an excluded case is skipped with its reason, but fails if it passes."""
    results = {}
    for backend in (Reference, Fast):
        classes = BackendTest(backend, module).test_cases
        for suite, name in SUITES.items():
            if backend_of(suite) is backend:
                results[f"OnnxBackend{name}ModelTest"] = classes[f"OnnxBackend{name}ModelTest"]
    for cls in results.values():
        for name, function in list(vars(cls).items()):
            exclusion = why_excluded(name.removesuffix("_cpu"))
            if name.endswith("_cuda"):
                delattr(cls, name)  # removed, since thousands of skipped tests would hide the rest
            elif exclusion is not None:
                setattr(cls, name, _expected_to_fail(function, exclusion.reason))
    return results


def _expected_to_fail(
    function: Callable[[unittest.TestCase], None], reason: str
) -> Callable[[unittest.TestCase], None]:
    @functools.wraps(function)
    def run(self: unittest.TestCase) -> None:
        try:
            function(self)
        except Exception:
            raise unittest.SkipTest(reason) from None
        self.fail("it passes, though excluded: `python -m tests.exchange.backend.report --write`, or see excluded.yaml")

    return run
