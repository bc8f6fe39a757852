"""Layers, losses, metrics, activations, initializers, regularizers and constraints: what a net file names.

This package is scanned for modules: the spec language, the registry-wide tests and the docs know each file in it.
Packages that add their own import from this module, from `netspec.graph` (ops and their values) and from
`netspec.training` (what a training file names).

To write a layer: `LayerSpec`, `Builder` (makes parameters and states), `Sample` (a configuration to test); `require`
reports inputs that do not fit, with the layer and its line.

To write others:

- losses: `LossSpec`, or `PairLoss` for a prediction and a target, with `ElementLosses`;
- metrics: `MetricSpec`, or `MeanMetric` and `PairMetric` for means over samples;
- `ActivationSpec`, `CellSpec` (of recurrent layers), `ConstraintSpec`, `InitializerSpec`, `RegularizerSpec`.

Types of fields: `Activation` (applied by `activate`), `Constraint`, `Initializer`, `Regularizer`. Default initializers:
`Zeros`, `Ones`, `Constant`, `RandomNormal`, `RandomUniform`, `TruncatedNormal`, `VarianceScaling`, `GlorotNormal`,
`GlorotUniform`, `HeNormal`, `HeUniform`, `LecunNormal`, `LecunUniform`.

Registries, for classes that are not added by an entry point: `@LAYERS.register`, and likewise `ACTIVATIONS`, `CELLS`,
`CONSTRAINTS`, `INITIALIZERS`, `LOSSES`, `METRICS`, `REGULARIZERS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from netspec.schema.specs.kinds import (
    ACTIVATIONS,
    CELLS,
    CONSTRAINTS,
    INITIALIZERS,
    LAYERS,
    LOSSES,
    METRICS,
    REGULARIZERS,
)

if TYPE_CHECKING:
    from netspec.layers.activation.base import Activation as Activation
    from netspec.layers.activation.base import ActivationSpec as ActivationSpec
    from netspec.layers.activation.base import activate as activate
    from netspec.layers.base import Builder as Builder
    from netspec.layers.base import LayerSpec as LayerSpec
    from netspec.layers.base import Sample as Sample
    from netspec.layers.checks import require as require
    from netspec.layers.constraints import Constraint as Constraint
    from netspec.layers.constraints import ConstraintSpec as ConstraintSpec
    from netspec.layers.initializers.base import Constant as Constant
    from netspec.layers.initializers.base import Initializer as Initializer
    from netspec.layers.initializers.base import InitializerSpec as InitializerSpec
    from netspec.layers.initializers.base import Ones as Ones
    from netspec.layers.initializers.base import Zeros as Zeros
    from netspec.layers.initializers.random import RandomNormal as RandomNormal
    from netspec.layers.initializers.random import RandomUniform as RandomUniform
    from netspec.layers.initializers.random import TruncatedNormal as TruncatedNormal
    from netspec.layers.initializers.variance_scaling import GlorotNormal as GlorotNormal
    from netspec.layers.initializers.variance_scaling import GlorotUniform as GlorotUniform
    from netspec.layers.initializers.variance_scaling import HeNormal as HeNormal
    from netspec.layers.initializers.variance_scaling import HeUniform as HeUniform
    from netspec.layers.initializers.variance_scaling import LecunNormal as LecunNormal
    from netspec.layers.initializers.variance_scaling import LecunUniform as LecunUniform
    from netspec.layers.initializers.variance_scaling import VarianceScaling as VarianceScaling
    from netspec.layers.losses_and_metrics import ElementLosses as ElementLosses
    from netspec.layers.losses_and_metrics import LossSpec as LossSpec
    from netspec.layers.losses_and_metrics import MeanMetric as MeanMetric
    from netspec.layers.losses_and_metrics import MetricSpec as MetricSpec
    from netspec.layers.losses_and_metrics import PairLoss as PairLoss
    from netspec.layers.losses_and_metrics import PairMetric as PairMetric
    from netspec.layers.recurrent.cells import CellSpec as CellSpec
    from netspec.layers.regularizers import Regularizer as Regularizer
    from netspec.layers.regularizers import RegularizerSpec as RegularizerSpec

_NAMES = {
    "netspec.layers.activation.base": "Activation ActivationSpec activate",
    "netspec.layers.base": "Builder LayerSpec Sample",
    "netspec.layers.checks": "require",
    "netspec.layers.constraints": "Constraint ConstraintSpec",
    "netspec.layers.initializers.base": "Constant Initializer InitializerSpec Ones Zeros",
    "netspec.layers.initializers.random": "RandomNormal RandomUniform TruncatedNormal",
    "netspec.layers.initializers.variance_scaling": "GlorotNormal GlorotUniform HeNormal HeUniform "
    "LecunNormal LecunUniform VarianceScaling",
    "netspec.layers.losses_and_metrics": "ElementLosses LossSpec MeanMetric MetricSpec PairLoss PairMetric",
    "netspec.layers.recurrent.cells": "CellSpec",
    "netspec.layers.regularizers": "Regularizer RegularizerSpec",
    "netspec.schema.specs.kinds": "ACTIVATIONS CELLS CONSTRAINTS INITIALIZERS LAYERS LOSSES METRICS REGULARIZERS",
}
"""Names by the module that defines them, which is imported when one of them is first used."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
if not TYPE_CHECKING:
    __all__ = list(_MODULES)

for _registry in (LAYERS, LOSSES, METRICS, ACTIVATIONS, CELLS, CONSTRAINTS, INITIALIZERS, REGULARIZERS):
    _registry.lives_in(__name__)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
