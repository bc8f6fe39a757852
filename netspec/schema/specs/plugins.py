"""Plugins: classes that other installed packages declare as entry points, imported when a spec names one.

A package declares a layer `Gate` like this; losses, solvers, sources and the like have groups of their own:

    [project.entry-points."netspec.layers"]
    Gate = "my_package.layers:Gate"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class Plugin:
    """A class of another package, which is not imported yet."""

    name: str
    """The type that it adds."""
    package: str
    """Name and version of the package."""
    target: EntryPoint

    def load(self) -> Any:
        """Import the class. Raises `InputError` if that fails for any reason."""
        try:
            return self.target.load()
        except Exception as error:  # importing foreign code can raise anything
            raise InputError(
                f"`{self.name}` of the package {self.package} cannot be loaded",
                expected=f"a class at `{self.target.value}`", got=f"{type(error).__name__}: {error}",
                hint="update the package, or uninstall it",
            ) from error  # fmt: skip


def plugins(group: str) -> dict[str, Plugin]:
    """Return the plugins of a group by name. Raises `InputError` if two packages add the same name."""
    from importlib.metadata import entry_points  # slow to import, and most specs use no plugins

    by_name: dict[str, Plugin] = {}
    for target in entry_points(group=group):
        package = f"{target.dist.name} {target.dist.version}" if target.dist else "without a name"
        other = by_name.setdefault(target.name, Plugin(target.name, package, target))
        if other.target.value != target.value:
            raise clash(target.name, other.package, package)
    return by_name


def clash(name: str, *packages: str) -> InputError:
    """The error for a name that several packages add."""
    return InputError(
        f"several packages add `{name}`", expected="one package for each name", got=" and ".join(packages),
        hint="uninstall one of them",
    )  # fmt: skip
