"""Compilers of a net or of a training step for one worker, for commands that time or plan it."""

from __future__ import annotations

from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.compile import Compiler
from netspec.errors import InputError
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.sgd import SGD
from netspec.tools.specs import kernel_settings, net_of, precision_of


def device_for(spec: NetSpec | TrainSpec, device: str, autotune: str | None = None) -> Device:
    """Open a device with the settings of `compile` in a training file; `autotune` overrides the file's."""
    return open_device(device, **kernel_settings(spec, autotune))


def compiler_for(spec: NetSpec | TrainSpec, solver: SolverSpec | None, device: Device) -> Compiler:
    """Return a compiler for the training step or, without a solver, for the net alone."""
    loop = spec.train if isinstance(spec, TrainSpec) and solver is not None else None
    return Compiler(net_of(spec), solver=solver, dtype=precision_of(spec), device=device, loop=loop)


def own_solver(spec: NetSpec | TrainSpec) -> SolverSpec | None:
    """Return the solver of a training file; None for a net."""
    if not isinstance(spec, TrainSpec):
        return None
    assert isinstance(spec.solver, SolverSpec)
    return spec.solver


def solver_or_default(spec: NetSpec | TrainSpec) -> SolverSpec | None:
    """Return the solver of a training file; SGD with momentum for a net with losses, None for a net without."""
    return own_solver(spec) or (SGD(type="SGD", momentum=0.9) if net_of(spec).losses else None)


def required_solver(spec: NetSpec | TrainSpec) -> SolverSpec:
    """Return the solver of a training file, or SGD with momentum. Raises `InputError` for a net without losses."""
    net, solver = net_of(spec), solver_or_default(spec)
    if solver is None or not net.losses:
        hint = "add `losses`, so that there is something to train"
        raise InputError("this net has no losses: it can't be trained", location=net.where(), hint=hint)
    return solver
