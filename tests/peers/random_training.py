"""Random losses, metrics and optimizers of Keras 2 and 3: built-in, a user's own, and ones that do not fit the outputs.

Each function uses the Keras that it is passed, and nothing of netspec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tests.peers.random_nets import Drawing, Random

LossOrMetric: TypeAlias = "tuple[Any, str]"
"""A loss or metric as `compile` takes it, and its class; the class is empty if it is user-defined."""
OWN = ("dice_loss", "recall_m", "precision_m", "qscore", "auc_roc", "huber_los", "nll_loss", "f1", "triplet_loss",
       "mse", "contrastive", "Scale")  # fmt: skip
ACCURACIES = ("BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy")
LOSS_CLASSES = (
    "MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanSquaredLogarithmicError", "Huber",
    "BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy", "Hinge", "SquaredHinge",
    "CategoricalHinge", "KLDivergence", "Poisson", "LogCosh", "CosineSimilarity", "BinaryFocalCrossentropy",
    "CategoricalFocalCrossentropy", "Dice", "Tversky", "CTC", "Circle",
)  # fmt: skip
METRIC_CLASSES: Mapping[str, Mapping[str, Any]] = {
    "AUC": {"num_thresholds": 50}, "Precision": {"thresholds": 0.25}, "Recall": {}, "TruePositives": {},
    "TopKCategoricalAccuracy": {"k": 7}, "SparseTopKCategoricalAccuracy": {"k": 3}, "CategoricalAccuracy": {},
    "SparseCategoricalAccuracy": {}, "BinaryAccuracy": {"threshold": 0.25}, "MeanIoU": {"num_classes": 2},
    "IoU": {"num_classes": 2, "target_class_ids": [0]}, "OneHotMeanIoU": {"num_classes": 3}, "F1Score": {},
    "R2Score": {}, "CosineSimilarity": {}, "KLDivergence": {}, "MeanSquaredError": {}, "LogCoshError": {},
    "CategoricalHinge": {}, "SparseCategoricalCrossentropy": {}, "SensitivityAtSpecificity": {"specificity": 0.5},
    "RootMeanSquaredError": {}, "FBetaScore": {"beta": 2.0}, "PearsonCorrelation": {},
}  # fmt: skip
STRINGS = {
    "mse": "MeanSquaredError", "mae": "MeanAbsoluteError", "mean_squared_error": "MeanSquaredError",
    "mean_absolute_percentage_error": "MeanAbsolutePercentageError", "hinge": "Hinge", "poisson": "Poisson",
    "binary_crossentropy": "BinaryCrossentropy", "categorical_crossentropy": "CategoricalCrossentropy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy", "KLD": "KLDivergence",
}  # fmt: skip
FUNCTIONS = {name: type_ for name, type_ in STRINGS.items() if "_" in name}


def compiled(drawing: Drawing, model: Any) -> list[str]:
    """Compile a model with random losses and metrics; returns the classes of those that are built in."""
    names = list(model.output_names)
    losses = [_loss(drawing) for _ in names]
    metrics = [[_metric(drawing) for _ in range(drawing.whole(0, 3))] for _ in names]
    single = len(names) == 1
    as_mapping = not single and drawing.maybe()

    def laid_out(values: list[Any]) -> Any:
        return values[0] if single else dict(zip(names, values, strict=True)) if as_mapping else values

    model.compile(
        optimizer(drawing), laid_out([loss for loss, _ in losses]),
        metrics=laid_out([[metric for metric, _ in several] for several in metrics]),
        loss_weights=laid_out([0.5] * len(names)) if not single and drawing.maybe() else None,
    )  # fmt: skip
    return [type_ for _, type_ in (*losses, *(metric for several in metrics for metric in several)) if type_]


def _own_function(name: str) -> Callable[..., Any]:
    def function(true: Any, predicted: Any) -> Any:
        return predicted - true

    function.__name__ = name
    return function


def _own_class(base: type, name: str) -> Any:
    """An object of a user-defined subclass of one of Keras's classes; not registered."""
    return type(name, (base,), {"__module__": "__main__"})()


def _loss(drawing: Drawing) -> LossOrMetric:
    kinds = drawing.keras.losses
    match drawing.whole(0, 5):
        case 0 | 1:
            name = drawing.one(list(STRINGS))
            return name, STRINGS[name]
        case 2:
            name = drawing.one(list(FUNCTIONS))
            return getattr(kinds, name), FUNCTIONS[name]
        case 3:
            return _own_function(drawing.one(OWN)), ""
        case 4:
            return _own_class(kinds.MeanSquaredError, drawing.one(("Huber", "DiceLoss", "Poisson", "Trip"))), ""
    name = drawing.one([loss_class for loss_class in LOSS_CLASSES if hasattr(kinds, loss_class)])
    fields = {"reduction": "sum"} if drawing.maybe(0.2) else {}
    return getattr(kinds, name)(**fields), name


def _metric(drawing: Drawing) -> LossOrMetric:
    kinds = drawing.keras.metrics
    match drawing.whole(0, 6):
        case 0:
            return drawing.one(("accuracy", "acc")), "accuracy"
        case 1:
            name = drawing.one(list(STRINGS))
            return name, STRINGS[name]
        case 2:
            return _own_function(drawing.one(OWN)), ""
        case 3:
            return _own_class(kinds.MeanSquaredError, drawing.one(("AUC", "Recall", "Precise"))), ""
    name = drawing.one([metric_class for metric_class in METRIC_CLASSES if hasattr(kinds, metric_class)])
    return getattr(kinds, name)(**METRIC_CLASSES[name]), name


def optimizer(drawing: Drawing) -> Any:
    """An optimizer by name, or of a class with random fields."""
    if drawing.maybe(0.2):
        return drawing.one(("adam", "sgd", "RMSprop"))
    old = not drawing.is_new and drawing.maybe()
    kinds = drawing.keras.optimizers.legacy if old else drawing.keras.optimizers
    broken = not drawing.is_new and not old  # Keras 2.11 to 2.15 take Nadam's momentum once for each variable
    name = drawing.one([field for field in _FIELDS if hasattr(kinds, field) and not (broken and field == "Nadam")])
    fields = _FIELDS[name](drawing)
    rate: Any = drawing.one((0.1, 0.01, 0.05))
    if not old and drawing.maybe(0.3):
        rate = _schedule(drawing)
    if old:
        fields |= {"decay": 0.25} if drawing.maybe() and name != "Nadam" else {}
        fields |= {"schedule_decay": drawing.one((0.004, 0.5))} if name == "Nadam" and drawing.maybe(0.7) else {}
    else:
        fields |= {"weight_decay": 0.05} if drawing.maybe(0.3) else {}
        fields |= {"use_ema": True, "ema_momentum": 0.75} if drawing.maybe(0.2) else {}
    fields |= drawing.one(({}, {}, {"clipnorm": 0.5}, {"clipvalue": 0.01}, {"global_clipnorm": 0.5}))
    return getattr(kinds, name)(rate, **fields)


_FIELDS: Mapping[str, Callable[[Drawing], dict[str, Any]]] = {
    "SGD": lambda draw: {"momentum": draw.one((0.0, 0.9)), "nesterov": draw.maybe()},
    "Adam": lambda draw: {"beta_1": draw.one((0.9, 0.5)), "amsgrad": draw.maybe(), "epsilon": draw.one((1e-7, 0.01))},
    "AdamW": lambda draw: {},
    "Adamax": lambda draw: {"beta_2": draw.one((0.999, 0.5))},
    "Nadam": lambda draw: {"beta_1": draw.one((0.9, 0.5))},
    "RMSprop": lambda draw: {"momentum": draw.one((0.0, 0.5)), "centered": draw.maybe(),
                             "epsilon": draw.one((1e-7, 0.05))},
    "Adagrad": lambda draw: {"initial_accumulator_value": draw.one((0.1, 0.0)), "epsilon": draw.one((1e-7, 0.05))},
    "Adadelta": lambda draw: {"rho": draw.one((0.95, 0.5)), "epsilon": draw.one((1e-7, 0.01))},
    "Ftrl": lambda draw: {"l1_regularization_strength": draw.one((0.0, 0.01)), "beta": draw.one((0.0, 0.1)),
                          "l2_shrinkage_regularization_strength": draw.one((0.0, 0.01))},
    "Lion": lambda draw: {"beta_1": draw.one((0.9, 0.5))},
    "Lamb": lambda draw: {},
}  # fmt: skip


def _schedule(drawing: Drawing) -> Any:
    kinds = drawing.keras.optimizers.schedules
    return drawing.one([
        lambda: kinds.ExponentialDecay(0.1, 2, 0.5, staircase=drawing.maybe()),
        lambda: kinds.InverseTimeDecay(0.1, 2, 0.5),
        lambda: kinds.PolynomialDecay(0.1, 10, power=2.0, cycle=drawing.maybe()),
        lambda: kinds.PiecewiseConstantDecay([1, 3], [0.1, 0.05, 0.01]),
        lambda: kinds.CosineDecay(0.1, 10, alpha=0.1),
        lambda: kinds.CosineDecay(0.0, 10, warmup_target=0.1, warmup_steps=2),
        lambda: kinds.CosineDecayRestarts(0.1, 2, t_mul=1.5),
    ])()  # fmt: skip


def trained(keras: Any, random: Random) -> Any:
    """A small net after a few steps of any optimizer."""
    drawing = Drawing(keras, random)
    L = keras.layers
    image = keras.Input((5, 4, 2), name="image")
    x = L.Conv2D(3, 3, activation="tanh", name="conv")(image)
    x = L.BatchNormalization(name="norm")(x)
    x = L.Dense(4, activation="softmax", name="classes")(L.Flatten(name="flat")(x))
    model = keras.Model(image, x, name="trained")
    model.compile(optimizer(drawing), "sparse_categorical_crossentropy", metrics=["accuracy"])
    for weight in model.weights:
        if not any(part in str(getattr(weight, "path", weight.name)) for part in ("variance", "mean", "gamma")):
            weight.assign(random.uniform(-0.5, 0.5, tuple(weight.shape)).astype(np.float32))
    for step in range(drawing.whole(0, 3)):
        model.train_on_batch(*batch(step))
    return model


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and classes of a step."""
    random = np.random.default_rng(100 + step)
    return random.uniform(-1, 1, (4, 5, 4, 2)).astype(np.float32), random.integers(0, 4, 4).astype(np.int32)
