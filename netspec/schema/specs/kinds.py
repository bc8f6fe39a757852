"""The registries of layers, losses, solvers and other kinds, and the fields that all members of a kind share.

The members are defined in `layers/`, `solvers/`, `data/` and other packages.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema

from netspec.schema.language.blocks import Condition, Repeat
from netspec.schema.specs.data import COLUMNS, SOURCES, TOKENIZERS, TRANSFORMS
from netspec.schema.specs.field_types import Name, Names
from netspec.schema.specs.spec import Member, Registry, Spec, describe, problem

Multiplier = Annotated[float, Field(ge=0)] | dict[str, Annotated[float, Field(ge=0)]]
"""A factor for all parameters of a layer, or one for each parameter by its name (`{kernel: 1, bias: 2}`)."""


CAFFE_PARAMS = tuple(
    f"{word}_param"
    for word in (
        "convolution",
        "pooling",
        "inner_product",
        "relu",
        "dropout",
        "batch_norm",
        "concat",
        "eltwise",
        "embed",
    )
)


RENORM = "not supported: GroupNormalization and LayerNormalization do not depend on the batch size"
LORA = "not supported: add two Dense layers, the first with few `units`, to the output of a frozen layer"
KERNELS = "not needed: `netspec plan --kernels` prints the kernels that are used"

REGULARIZERS: Registry[Spec] = Registry("regularizer")
CELLS: Registry[Spec] = Registry("cell")


class LayerFields(Spec):
    """Fields of all layers."""

    foreign_fields: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("renorm", "renorm_clipping", "renorm_momentum"), RENORM),
        **dict.fromkeys(("lora_rank", "lora_alpha"), LORA),
        **dict.fromkeys(("use_cudnn", "flash_attention"), KERNELS),
        "bottom": "`bottom` is Caffe's name: use `from`",
        "top": "not needed: the output of a layer has the layer's `name`",
        "inputs": "use `from`",
        "input": "use `from`",
        "lr_mult": "use `learning_rate_multiplier`",
        "decay_mult": "use `weight_decay_multiplier`",
        "num_output": "`num_output` is Caffe's name: use `filters` (Conv2D) or `units` (Dense)",
        "out_channels": "`out_channels` is PyTorch's name: use `filters`",
        "out_features": "`out_features` is PyTorch's name: use `units`",
        "in_channels": "not needed: it follows from what the layer reads",
        "in_features": "not needed: it follows from what the layer reads",
        "input_shape": "`input_shape` is Keras's name: shapes are declared under `inputs`",
        "data_format": "not needed: data is channels-first, (batch, channels, height, width)",
        "kernel": "use `kernel_size`",
        "kernel_size": "use `pool_size`",
        "stride": "use `strides`",
        "pad": "use `padding`",
        "dilation": "use `dilation_rate`",
        "group": "use `groups`",
        "bias": "use `use_bias`",
        "bias_term": "`bias_term` is Caffe's name: use `use_bias`",
        "p": "`p` is PyTorch's name: use `rate`",
        "dropout_ratio": "`dropout_ratio` is Caffe's name: use `rate`",
        "weight_filler": "`weight_filler` is Caffe's name: use `kernel_initializer`",
        "bias_filler": "`bias_filler` is Caffe's name: use `bias_initializer`",
        "eps": "use `epsilon`",
        "quantization_config": "not supported: weights are floats",
        "reverse_dtype": "not supported: a net is computed in one precision, which `train.precision` sets",
        "weights": "not supported: `init_from` of the training file sets initial values",
        "pool": "`pool` is Caffe's name: use a type, MaxPooling2D or AveragePooling2D",
        "global_pooling": "`global_pooling` is Caffe's name: use a type, GlobalAveragePooling2D",
        **dict.fromkeys(CAFFE_PARAMS, "not needed: write its fields next to `type`"),
    }

    name: Name = ""
    """Name of the layer and of its output; unique in the net. By default the type in snake case, with a number."""
    from_: Names | None = Field(default=None, alias="from")
    """The layers or inputs that the layer reads. By default the previous layer, or for the first layer the first
    input."""
    trainable: bool = True
    """Whether training updates the parameters of the layer."""
    share: Name | None = None
    """Name of an earlier layer of the same type whose parameters this layer uses."""
    learning_rate_multiplier: Multiplier = 1.0
    """Factor on the learning rate of the layer's parameters: a number, or one per parameter."""
    weight_decay_multiplier: Multiplier = 1.0
    """Factor on the weight decay of the layer's parameters: a number, or one per parameter."""
    activity_regularizer: Annotated[Spec, Member(REGULARIZERS)] | None = None
    """Penalty on the output, divided by the number of samples, that is added to the loss in training."""
    repeat: Repeat = Field(default=None, exclude=True)
    """Number of copies of the layer, each of which reads the previous one; or variables with the value for each copy:
    `{width: [64, 128]}`."""
    if_: Condition = Field(default=None, alias="if", exclude=True)
    """Whether the net contains the layer."""

    def output_names(self) -> tuple[str, ...]:
        """Names of the layer's outputs, in order, if it has several: `lstm.state_h`.

        Empty for a layer with one output, which has the layer's name. So does the first of several.
        """
        return ()


Reduction = Literal["sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "batch_size", "full"]


def _reduction(value: Any) -> Any:
    if value in (None, "none"):
        raise problem(
            "a loss must be reduced to one number",
            expected=f"one of {', '.join(get_args(Reduction))}",
            got=describe(value),
            hint="use `sum`, which Keras minimizes with `none`",
        )
    return value


class LossOrMetricFields(Spec):
    """Fields of all losses and metrics."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "bottom": "`bottom` is Caffe's name: use `from`",
        "top": "not needed: the value has the loss's or metric's `name`",
        "inputs": "use `from`",
        "sample_weights": "use `sample_weight`: the name of an input or layer",
        "ignore_label": "`ignore_label` is Caffe's name: use `ignore_class`",
        "ignore_index": "`ignore_index` is PyTorch's name: use `ignore_class`",
        "threshold": "use `thresholds`",
        "top_k": "use `k`",
        "eps": "use `epsilon`",
        "num_labels": "not needed: it follows from the prediction",
        "axis": "not needed: the mean is over all elements",
    }
    compares: ClassVar[bool] = True
    """Whether it reads a prediction and a target, instead of a single value of the net."""

    name: Name = ""
    """Name in logs. By default the type in snake case."""
    from_: Names | None = Field(default=None, alias="from")
    """The values to compare: `[prediction, target]`. By default the last of the net's `outputs`, and the only input
    that neither a layer nor a `sample_weight` reads."""
    sample_weight: Name | None = None
    """Name of the input or layer with the weights: one per sample, or one per element of a sample."""


class LossFields(LossOrMetricFields):
    """Fields of all losses."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "loss_weight": "`loss_weight` is Caffe's name: use `weight`",
        "loss_param": "not needed: write its fields next to `type`",
        "normalization": "use `reduction`: VALID is `mean`, BATCH_SIZE `batch_size`, FULL `full`, NONE `sum`",
        "normalize": "use `reduction`: `mean` for true, `batch_size` for false",
        "size_average": "use `reduction`: `mean` for true, `sum` for false",
        "pos_weight": "use `class_weight`: `{1: …}`",
    }

    weight: float = 1.0
    """Weight of this loss in the total loss."""
    reduction: Annotated[Reduction, BeforeValidator(_reduction)] = "sum_over_batch_size"
    """Reduction of the losses of all elements of a batch: their mean (`sum_over_batch_size`, or `mean`), their sum
    divided by the sum of the weights (`mean_with_sample_weight`), their `sum`, the sum divided by the number of samples
    (`batch_size`), or by the number of all elements, including masked and ignored ones (`full`)."""


class MetricFields(LossOrMetricFields):
    """Fields of all metrics."""

    monitor_mode: ClassVar[Literal["min", "max"] | None] = None
    """Whether lower or higher values are better; None if that depends on the net."""
    unit_power: ClassVar[int] = 0
    """Power of the target's unit in the result: 1 for an absolute error, 2 for a squared one, 0 without a unit."""


LAYERS: Registry[LayerFields] = Registry("layer")
LOSSES: Registry[LossFields] = Registry("loss")
METRICS: Registry[MetricFields] = Registry("metric")
ACTIVATIONS: Registry[Spec] = Registry("activation")
INITIALIZERS: Registry[Spec] = Registry("initializer")
CONSTRAINTS: Registry[Spec] = Registry("constraint")
SOLVERS: Registry[Spec] = Registry("solver")
SCHEDULES: Registry[Spec] = Registry("schedule")
STRATEGIES: Registry[Spec] = Registry("strategy", tag="strategy")
CALLBACKS: Registry[Spec] = Registry("callback")
STRATEGIES.lives_in("netspec.distributed.strategies")  # not imported before a spec names a strategy
CALLBACKS.lives_in("netspec.training.callbacks")

AnyLayer = Annotated[LayerFields, Member(LAYERS)]
AnyEntry = Annotated[
    LayerFields, Member(LAYERS), WithJsonSchema({"x-netspec-registry": "layer", "x-netspec-entry": True})
]
"""A layer; in the JSON Schema also a call of a block, a group, or an included file."""
AnyLoss = Annotated[LossFields, Member(LOSSES)]
AnyMetric = Annotated[MetricFields, Member(METRICS)]
AnySolver = Annotated[Spec, Member(SOLVERS)]
AnyStrategy = Annotated[Spec, Member(STRATEGIES)]
AnyCallback = Annotated[Spec, Member(CALLBACKS)]

REGISTRIES: dict[str, Registry[Any]] = {
    registry.kind: registry
    for registry in (
        LAYERS,
        LOSSES,
        METRICS,
        ACTIVATIONS,
        INITIALIZERS,
        REGULARIZERS,
        CONSTRAINTS,
        CELLS,
        SOLVERS,
        SCHEDULES,
        STRATEGIES,
        CALLBACKS,
        SOURCES,
        TRANSFORMS,
        TOKENIZERS,
        COLUMNS,
    )
}
