"""What other installed packages add: classes that they declare as entry points, imported when a spec names one.

A package declares a layer `Gate` so, and likewise a loss, a solver, a source in the group of its kind:

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
    """A class of another package, not imported yet."""

    name: str
    """The type that it adds."""
    package: str
    """The package and its version."""
    target: EntryPoint

    def load(self) -> Any:
        """What the entry point names. Raises `InputError` where it can't be imported, whatever the reason."""
        try:
            return self.target.load()
        except Exception as error:  # whatever runs when a module of others is imported
            raise InputError(
                f"`{self.name}` of the package {self.package} can't be loaded",
                expected=f"a class at `{self.target.value}`", got=f"{type(error).__name__}: {error}",
                hint="bring the package up to date, or uninstall it",
            ) from error  # fmt: skip


def plugins(group: str) -> dict[str, Plugin]:
    """What all installed packages add to a group, by name. Raises `InputError` where two add the same."""
    from importlib.metadata import entry_points  # takes a while, and most specs name nothing of others

    found: dict[str, Plugin] = {}
    for target in entry_points(group=group):
        package = f"{target.dist.name} {target.dist.version}" if target.dist else "without a name"
        other = found.setdefault(target.name, Plugin(target.name, package, target))
        if other.target.value != target.value:
            raise clash(target.name, other.package, package)
    return found


def clash(name: str, *packages: str) -> InputError:
    """The error for one name that several packages give."""
    return InputError(
        f"several packages add `{name}`", expected="one of each name", got=" and ".join(packages),
        hint="uninstall one of them",
    )  # fmt: skip
