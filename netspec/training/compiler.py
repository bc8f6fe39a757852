"""The compiler of a training's net and solver, and the loader of its data."""

from __future__ import annotations

from netspec.backends.device_registry import open_device
from netspec.compile import Compiler, ProgramKind
from netspec.data.loader import Loader, OpenLoader, open_loader
from netspec.graph.types import Precision
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.training.arguments import device_argument
from netspec.training.required_inputs import input_fields, input_ranges
from netspec.training.session import LOCAL, Session


def training_compiler(spec: TrainSpec, device: str, session: Session = LOCAL) -> Compiler:
    """Compile a training's net and solver for one worker of `session`."""
    assert isinstance(spec.solver, SolverSpec)
    loop, options = spec.train, spec.compile
    opened = open_device(
        device_argument(device), options.autotune, options.rounding, deterministic=options.deterministic,
        host_only=session.host_only_reason(),
    )  # fmt: skip
    return Compiler(
        spec.net, solver=spec.solver, dtype=Precision(loop.precision), device=opened, seed=loop.seed, loop=loop,
        distribution=session.plan(spec, opened),
    )  # fmt: skip


def open_training_loader(
    spec: TrainSpec, compiler: Compiler, session: Session = LOCAL, open_data: OpenLoader = open_loader
) -> Loader:
    """Open the training data with the inputs that the net's programs read, some of them as uint8."""
    # A pipeline stage may read no input itself.
    batch_program = compiler.batch_program if not compiler.distribution.splits_net else ProgramKind.FORWARD
    inputs = input_fields(compiler, [batch_program, *([ProgramKind.ADAPT] if compiler.adapts else [])])
    loader = open_data(
        spec.data.train, seed=spec.train.seed, inputs=inputs, ranges=input_ranges(compiler),
        declared_inputs=spec.net.inputs,
        share=session.training_share, late=compiler.device.accepts_uint8 and not compiler.distribution.splits_net,
    )  # fmt: skip
    compiler.decode_uint8(loader.deferred)
    return loader
