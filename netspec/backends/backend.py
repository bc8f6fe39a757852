"""Backends by name: the package of each, whether it can be used here, and loading its kernels.

A backend is a package with two functions, `unavailable_reason() -> str | None` and `description() -> str`, and with its
kernels in a module or a package `kernels`, of which all modules are imported. The kernels are the classes there that
are decorated with `netspec.graph.kernel.kernel`. A backend sets `ROUNDS_MORE = True` if its kernels round more than
direct sums do. A backend that plans for absent GPUs has `planning_caveat(gpu) -> str | None`, which returns why its
kernels are planned for a GPU without asking the library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

PACKAGES = {
    "reference": "netspec.backends.reference",
    "numba": "netspec.backends.numba",
    "winograd": "netspec.backends.numba.winograd",
    "onednn": "netspec.backends.onednn",
    "cuda": "netspec.backends.cuda",
    "cublaslt": "netspec.backends.cuda.cublaslt",
    "cudnn": "netspec.backends.cuda.cudnn",
}
"""The package of each backend. `netspec.distributed` adds the backends of operations between workers."""
COMMUNICATION = {"workers", "nccl"}
"""Backends of operations between workers, which are only registered once `netspec.distributed` is imported."""
ALWAYS_ENABLED = {"reference", *COMMUNICATION}
"""Backends that NETSPEC_KERNELS cannot disable."""


def register_backend(name: str, package: str) -> None:
    """Register the package of a backend by its dotted name."""
    PACKAGES[name] = package


def is_registered(name: str) -> bool:
    """Whether a package provides the backend."""
    return name in PACKAGES


def package(name: str) -> ModuleType:
    """The package of a backend."""
    return import_module(PACKAGES[name])


def load_kernels(*names: str) -> None:
    """Import the kernels of backends, so that they are registered."""
    for name in names:
        kernels = import_module(f"{PACKAGES[name]}.kernels")
        for module in iter_modules(getattr(kernels, "__path__", ())):
            import_module(f"{kernels.__name__}.{module.name}")


def unavailable_reasons(names: Sequence[str]) -> dict[str, str]:
    """The backends among `names` that cannot be used here, each with the reason.

    The environment variable NETSPEC_KERNELS, a comma-separated list of names, disables all other backends.
    """
    reasons = {name: _unavailable_reason(name) for name in names}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _unavailable_reason(name: str) -> str | None:
    if not is_registered(name):
        return "only needed by several workers"
    if not is_enabled(name):
        return "NETSPEC_KERNELS omits it"
    reason: str | None = package(name).unavailable_reason()
    return reason


def is_enabled(name: str) -> bool:
    """Whether a backend is enabled: included in the environment variable NETSPEC_KERNELS, if that is set."""
    enabled = os.environ.get("NETSPEC_KERNELS", "")
    return not enabled or name in {*ALWAYS_ENABLED, *(word.strip() for word in enabled.split(","))}


def description(name: str) -> str:
    """The libraries and versions that run the kernels of a backend."""
    text: str = package(name).description()
    return text


def rounds_more(name: str) -> bool:
    """Whether the kernels of a backend round more than direct sums of products do."""
    return bool(getattr(package(name), "ROUNDS_MORE", False))


def planning_caveat(name: str, gpu: str) -> str | None:
    """Return why a backend plans for an absent GPU without asking its library; None if it asks the library."""
    caveat = getattr(package(name), "planning_caveat", None)
    return None if caveat is None else caveat(gpu)
