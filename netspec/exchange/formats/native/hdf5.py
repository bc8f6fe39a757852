"""netspec's own files: weights, checkpoints and capsules.

*weights* has the parameters and statistics of a net, *checkpoint* everything that resumes a run, *capsule* everything
that repeats a failed step.

Each file states its kind, the version of its layout, and a checksum (docs/formats.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5_file import DAMAGED, Content, read_block, read_file, write_file

LEARNED = ("parameter", "statistic")
"""Roles of the states that make up a net's weights; the rest of a checkpoint belongs to the solver."""
WORKER = "$worker"
"""Prefix of the names of states that belong to further workers."""
WEIGHTS = "a weights file (.h5) written by netspec"
CHECKPOINT = "a checkpoint (.h5) written by netspec"
CAPSULE = "a capsule (.h5) that `netspec train` wrote when a run failed"
INPUT, TABLE = "$input/", "$table/"
"""Prefixes of the names of a capsule's inputs, and of the tables that decode its images."""


@dataclass(frozen=True)
class WeightsFile:
    """Arrays of a net by state name, and the metadata of the file."""

    arrays: dict[str, NDArray[Any]]
    net: str = ""
    """The net's resolved YAML; empty if it was not recorded."""
    name: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    kind: str = "weights"
    """`checkpoint` if the arrays are from a checkpoint."""


@dataclass(frozen=True)
class CheckpointFile:
    """States of a run by name, with their roles and its progress."""

    states: dict[str, NDArray[Any]]
    roles: dict[str, str]
    """`parameter`, `statistic`, `slot`, `gradient`, `residual` or `center`, for each state."""
    progress: dict[str, Any]
    spec: str
    """The run's resolved YAML."""
    evaluated: dict[str, str] = field(default_factory=dict)
    """The state that replaces each parameter outside of training, such as an average."""
    own: tuple[dict[str, NDArray[Any]], ...] = ()
    """Values of states that differ on each further worker; those of the first are in `states`."""

    def learned(self) -> dict[str, NDArray[Any]]:
        """The weights with which the net is evaluated: parameters and statistics, without the solver's slots."""
        learned_names = [name for name in self.states if self.roles[name] in LEARNED]
        return {name: self.states[self.evaluated.get(name, name)] for name in learned_names}


@dataclass(frozen=True)
class CapsuleFile:
    """A training step whose results were not finite: one call of a program, with everything that it reads."""

    states: dict[str, NDArray[Any]]
    """The states before the call, by name."""
    inputs: dict[str, NDArray[Any]]
    """Further inputs of the program: the batch, the key of random numbers, learning rates."""
    tables: dict[str, NDArray[Any]]
    """Lookup tables of the inputs that are images in bytes."""
    spec: str
    """The run's resolved YAML, with origins."""
    facts: dict[str, Any]
    """The program, the step, the environment, and the results."""


def write_weights(
    path: str | Path, arrays: Mapping[str, NDArray[Any]], *, net: str = "", name: str = "", **meta: Any
) -> None:
    """Write a weights file; `net` is the net's resolved YAML, `meta` anything that JSON can express.

    Raises `RunError` if it cannot be written; an existing file at `path` is then unchanged.
    """
    write_file(path, "weights", arrays, {}, {"name": name, "net": net, "extra": meta})


def read_weights(path: str | Path) -> WeightsFile:
    """Read a weights file, or the weights in a checkpoint. Raises `InputError` with all problems of the file."""
    content = read_file(path, WEIGHTS)
    if content.kind == "checkpoint":
        weights = _checkpoint(path, content)
        return WeightsFile(weights.learned(), kind="checkpoint", meta={"progress": weights.progress})
    if content.kind == "capsule":
        hint = "`netspec replay` repeats the step; checkpoints of the run have its weights"
        raise InputError(f"{path} is a capsule of a failed step, not a weights file", expected=WEIGHTS, hint=hint)
    net, name, extra = (
        _part(path, content.meta, key, kind) for key, kind in (("net", str), ("name", str), ("extra", dict))
    )
    return WeightsFile(content.arrays, net, name, extra)


def write_checkpoint(
    path: str | Path,
    states: Mapping[str, NDArray[Any]],
    roles: Mapping[str, str],
    progress: Mapping[str, Any],
    spec: str,
    *,
    evaluated: Mapping[str, str] = MappingProxyType({}),
    worker_states: Sequence[Mapping[str, NDArray[Any]]] = (),
) -> None:
    """Write a checkpoint: `progress` is a JSON object (step, epoch, seed, …), `spec` the run's resolved YAML.

    `evaluated` maps parameters to the states that replace them in evaluation. `worker_states` has, for
    each further worker, the states whose values differ from those of the first worker.

    Raises `RunError` if it cannot be written; an existing file at `path` is then unchanged.
    """
    unknown = states.keys() ^ roles.keys()
    if unknown:
        raise ValueError(f"states and roles differ: {sorted(unknown)}")
    step = progress.get("step")
    others = {
        f"{WORKER}/{rank}/{name}": array
        for rank, states in enumerate(worker_states, 1)
        for name, array in states.items()
    }
    meta = {"progress": dict(progress), "spec": spec, "spec_sha256": _sha256(spec)}
    meta |= {"evaluated": dict(evaluated)} if evaluated else {}
    all_roles = {**roles, **dict.fromkeys(others, "worker")}
    header_step = step if isinstance(step, int) and step >= 0 else None
    write_file(path, "checkpoint", {**states, **others}, all_roles, meta, header_step)


def _sha256(spec: str) -> str:
    return hashlib.sha256(spec.encode()).hexdigest()


def read_checkpoint(path: str | Path) -> CheckpointFile:
    """Read a checkpoint. Raises `InputError` with all problems of the file."""
    content = read_file(path, CHECKPOINT)
    if content.kind != "checkpoint":
        raise InputError(
            f"{path} is a {content.kind} file, not a checkpoint", expected=CHECKPOINT,
            got=f"{content.kind}: no progress of a run",
            hint="to start a new run from weights, pass them as `--weights`",
        )  # fmt: skip
    return _checkpoint(path, content)


def write_capsule(path: str | Path, capsule: CapsuleFile, roles: Mapping[str, str]) -> None:
    """Write a capsule; `roles` are those of its states. Raises `RunError` if it cannot be written."""
    inputs = {f"{INPUT}{name}": array for name, array in capsule.inputs.items()}
    tables = {f"{TABLE}{name}": array for name, array in capsule.tables.items()}
    all_roles = {**roles, **dict.fromkeys(inputs, "input"), **dict.fromkeys(tables, "table")}
    meta = {"spec": capsule.spec, "facts": capsule.facts}
    write_file(path, "capsule", {**capsule.states, **inputs, **tables}, all_roles, meta)


def read_capsule(path: str | Path) -> CapsuleFile:
    """Read a capsule. Raises `InputError` if the file is damaged or is not a capsule."""
    content = read_file(path, CAPSULE)
    if content.kind != "capsule":
        raise InputError(f"{path} is a {content.kind} file, not a capsule", expected=CAPSULE, got=content.kind)
    spec, facts = _part(path, content.meta, "spec", str), _part(path, content.meta, "facts", dict)

    def named(prefix: str, role: str) -> dict[str, NDArray[Any]]:
        of_role = {name: array for name, array in content.arrays.items() if content.roles[name] == role}
        return {name.removeprefix(prefix): array for name, array in of_role.items()}

    inputs, tables = named(INPUT, "input"), named(TABLE, "table")
    states = {name: array for name, array in content.arrays.items() if content.roles[name] not in ("input", "table")}
    return CapsuleFile(states, inputs, tables, spec, facts)


def _checkpoint(path: str | Path, content: Content) -> CheckpointFile:
    meta, roles = content.meta, {name: role for name, role in content.roles.items() if role != "worker"}
    states = {name: content.arrays[name] for name in roles}
    progress, spec = _part(path, meta, "progress", dict), _part(path, meta, "spec", str)
    digest = meta.get("spec_sha256", _sha256(spec))  # until version 0.2, there was none
    if digest != _sha256(spec):
        raise InputError(
            f"{path} is refused: its spec is not the one that the run had", expected=f"sha256 {digest}",
            got=f"sha256 {_sha256(spec)}", hint=DAMAGED,
        )  # fmt: skip
    evaluated = _part(path, {"evaluated": {}, **meta}, "evaluated", dict)
    for name, other in evaluated.items():
        if not (isinstance(other, str) and name in states and other in states) or (
            states[name].shape != states[other].shape
        ):
            raise InputError(f"{path} is refused: no state like `{name}` stands for it", got=f"{other!r}"[:80])
    return CheckpointFile(states, roles, progress, spec, evaluated, _own(path, content, states))


def _own(path: str | Path, content: Content, states: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], ...]:
    """States of further workers, in the order of ranks."""
    by_rank: dict[int, dict[str, NDArray[Any]]] = {}
    for label, array in content.arrays.items():
        if content.roles[label] == "worker":
            rank, _, name = label.removeprefix(f"{WORKER}/").partition("/")
            matches = name in states and states[name].shape == array.shape and states[name].dtype == array.dtype
            if not (rank.isdecimal() and 1 <= int(rank) <= len(content.arrays) and matches):
                raise InputError(f"{path} is refused: no worker has a state `{label}`"[:300])
            by_rank.setdefault(int(rank), {})[name] = array
    names = {frozenset(states) for states in by_rank.values()}
    if sorted(by_rank) != list(range(1, len(by_rank) + 1)) or len(names) > 1:
        raise InputError(f"{path} is refused: the states of some workers are missing")
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def _part(path: str | Path, meta: Mapping[str, Any], key: str, kind: type) -> Any:
    value = meta.get(key)
    if not isinstance(value, kind):
        raise InputError(f"{path} lacks `{key}`", expected="a file as netspec writes it", got=f"{value!r}"[:80])
    return value


@dataclass(frozen=True)
class LatestCheckpoint:
    """The newest undamaged checkpoint of a folder, if any; `notes` name damaged ones."""

    path: Path | None = None
    content: CheckpointFile | None = None
    notes: tuple[str, ...] = ()


def find_latest_checkpoint(folder: str | Path) -> LatestCheckpoint:
    """Read the checkpoint of the highest step among the undamaged `.h5` files of `folder`."""
    notes: list[str] = []
    checkpoints: list[tuple[int, str, Path]] = []
    for path in sorted(Path(folder).glob("*.h5")):
        try:
            block = read_block(path, CHECKPOINT)
        except InputError as error:
            notes.append(f"left out: {error.summary}")
            continue
        if block.kind == "checkpoint":
            checkpoints.append((-1 if block.step is None else block.step, path.name, path))
    for _, _, path in sorted(checkpoints, reverse=True):
        try:
            return LatestCheckpoint(path, read_checkpoint(path), tuple(notes))
        except InputError as error:
            notes.append(f"left out: {error.summary}")
    return LatestCheckpoint(notes=tuple(notes))
