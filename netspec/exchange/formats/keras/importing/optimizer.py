"""Import the optimizer of a model as a solver, and its variables as the states of the solver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.containers.hdf5 import Hdf5Reader
from netspec.exchange.formats.keras import optimizers
from netspec.exchange.formats.keras.importing.archive import KerasFile
from netspec.exchange.formats.keras.importing.fields import (
    ReadContext,
    plain_value,
    refuse_foreign,
    round_to_float32_digits,
)
from netspec.exchange.formats.keras.importing.importer import KerasImporter, WeightedLayer
from netspec.exchange.formats.keras.importing.weights import convert_array, file_order
from netspec.exchange.formats.keras.names import KerasVariable, keras_snake, layer_type
from netspec.exchange.formats.keras.optimizers import MUON_COEFFICIENTS, averages_along, distinct_elements
from netspec.exchange.net_yaml_writer import training_text
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.types import factored_axes
from netspec.schema.specs.patterns import matches

MUON_FIELDS = (*MUON_COEFFICIENTS, "exclude_layers", "exclude_embeddings")
"""Fields of Keras's Muon that differ from the solver's."""
MATRIX = 2
"""Rank of a matrix."""
MAX_EXPRESSIONS, MAX_LENGTH = 256, 200
"""Largest number of expressions, and of characters of one."""
DEFAULT_EXCLUDE = ("*embeddings",)
"""The solver's default of `exclude`."""
_SAFE_EXPRESSION = re.compile(r"\^?(\(\^\|/\))?([\w\-/ ]|\\[^\w])*(\(\.\*/\)\?[\w\-/ ]*)?\$?")
"""Expressions that are safe to search: text, anchors, and one gap of whole names."""
Parameters: TypeAlias = "Sequence[tuple[WeightedLayer, KerasVariable]]"


def name_of(layer: WeightedLayer, variable: KerasVariable) -> str:
    """The name of a variable's parameter in the net."""
    return f"{layer.draft.name}/{layer.prefix}{variable.state}"


def exclude_field(file: KerasFile, trained: Parameters, reading: ReadContext) -> dict[str, Any]:
    """The field `exclude`: matrices that Keras updates by AdamW."""
    matrices_of_keras = keras_matrices(file, trained, reading)
    matrices = [name_of(*pair) for pair in trained if _rank(*pair) == MATRIX]
    if all((name in matrices_of_keras) != matches(DEFAULT_EXCLUDE, name) for name in matrices):
        return {}
    return {"exclude": [name for name in matrices if name not in matrices_of_keras]}


def keras_matrices(file: KerasFile, trained: Parameters, reading: ReadContext) -> list[str]:
    """The parameters that Keras updates as matrices."""
    config = optimizer_config(file.training or {})
    expressions = _expressions(config.get("exclude_layers"), reading)
    embeddings = config.get("exclude_embeddings", True)
    names = []
    for layer, variable in trained:
        path = _keras_path(layer, variable)
        is_excluded = any(text.search(path) for text in expressions) or (embeddings and "embedding" in path.lower())
        if _rank(layer, variable) == MATRIX and not is_excluded:
            names.append(name_of(layer, variable))
    return names


def _rank(layer: WeightedLayer, variable: KerasVariable) -> int:
    """Rank of a parameter, which is the same in Keras."""
    return len(layer.shapes[layer.prefix + variable.state])


def optimizer_config(training: Mapping[str, Any]) -> Mapping[str, Any]:
    """The optimizer's fields, also inside a LossScaleOptimizer."""
    entry = _entry(training)
    config = entry.get("config") if isinstance(entry, dict) else None
    if isinstance(config, dict) and isinstance(config.get("inner_optimizer"), dict):
        config = config["inner_optimizer"].get("config")
    return config if isinstance(config, dict) else {}


def _keras_path(layer: WeightedLayer, variable: KerasVariable) -> str:
    """The path of a variable in Keras, as far as it is known: `lstm/lstm_cell/kernel`."""
    cell = f"{keras_snake(layer_type(layer.configured.class_name))}_cell"
    groups = [cell if group == "cell" else group for group in variable.group.split("/") if group]
    return "/".join([layer.configured.path[-1], *groups, variable.name])[-MAX_LENGTH:]


def _expressions(setting: Any, reading: ReadContext) -> list[re.Pattern[str]]:
    texts = [str(text) for text in setting] if isinstance(setting, (list, tuple)) else []
    safe = [text for text in texts[:MAX_EXPRESSIONS] if len(text) <= MAX_LENGTH and _SAFE_EXPRESSION.fullmatch(text)]
    ignored_count = len(texts) - len(safe)
    if ignored_count:
        reading.notes.add(
            f"{ignored_count} of `exclude_layers` of the optimizer Muon {'was' if ignored_count == 1 else 'were'} left "
            f"out: names of layers or parts of them are read, of expressions no more than that"
        )
    return [re.compile(text) for text in safe]


def trained_in_order(importer: KerasImporter) -> list[tuple[WeightedLayer, KerasVariable]]:
    """The parameters that Keras trains, in its order."""
    positions = {layer: position for position, layer in enumerate(importer.graph.layers)}
    ordered = sorted(importer.layer_weights, key=lambda weights: positions[weights.configured])
    return [
        (weights, variable)
        for weights, variable in file_order(ordered)
        if variable is not None and variable.trainable and not weights.configured.frozen
    ]


def slots_of(
    file: KerasFile, importer: KerasImporter, solver: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], int]:
    """The states of the solver, and its number of steps; empty if those of the file do not fit the net."""
    weights = file.weights
    paths = [] if weights is None else _variable_paths(weights)
    if weights is None or not paths:
        return {}, 0
    if weights.shape(paths[0]) != ():  # Keras 1 to 2.2 do not write it for RMSprop, Adagrad and Adadelta
        importer.reading.notes.add("the states of the optimizer were left out: the file does not state the step")
        return {}, 0
    step = int(weights.array(paths[0]).item())
    arrays = [weights.array(path) for path in paths[1 + _has_rate(file, solver) :]]
    if not arrays and not step:
        return {}, 0
    type_ = str(solver["type"])
    old = optimizers.is_old(optimizer_config(file.training or {}))
    products: list[NDArray[Any]] = []
    if type_ == "Nadam":
        has_product = arrays and arrays[-1 * (not old)].shape == ()
        products = [arrays.pop(-1 * (not old)) if has_product else _momentum_product(solver, step)]
    if type_ == "SGD" and not solver.get("momentum") and file.major < 3:
        arrays = []  # velocities, which have no effect without a momentum
    trained = trained_in_order(importer)
    by_name = sorted(trained, key=lambda pair: pair[0].stored.get(pair[1].state, ""))
    sorts_variables = file.version.startswith(("1.", "2.0."))
    possible_orders = [by_name, trained] if sorts_variables else [trained]
    matrices = set(keras_matrices(file, trained, importer.reading)) if type_ == "Muon" else set()
    averages = len(trained) if solver.get("ema") else 0
    full_size = _unfactored(arrays, trained, averages) if type_ == "Adafactor" else arrays
    groups = optimizers.stored_slot_groups(type_, solver, old=old)
    for parameters in possible_orders:
        slots = _slots(type_, groups, parameters, full_size, matrices)
        if slots is not None:
            slots = {
                key: -array if optimizers.is_negated(type_, key.rpartition("/")[2]) else array
                for key, array in slots.items()
            }
            if type_ == "Adafactor":
                indices = _slots(
                    type_,
                    groups,
                    parameters,
                    _unfactored([*map(distinct_elements, arrays)], trained, averages),
                    matrices,
                )
                slots = _refactored(slots, indices or {}, importer)
            if products:
                slots[optimizers.MOMENTUM_PRODUCT] = products[0].astype("float32")
            return slots, step
    importer.reading.notes.add("the states of the optimizer do not fit the net and are left out")
    return {}, 0


def _variable_paths(weights: Hdf5Reader) -> list[str]:
    """Paths of the optimizer's variables, in its order."""
    if weights.attribute("optimizer_weights", "weight_names"):
        names = weights.attribute("optimizer_weights", "weight_names")
        return [path for name in names if weights.holds(path := f"optimizer_weights/{name}")]
    group = "optimizer/inner_optimizer/vars" if "optimizer/inner_optimizer/vars" in weights else "optimizer/vars"
    indices = sorted(int(name) for name in weights.below(group) if name.isdigit())
    return [f"{group}/{index}" for index in indices]


def _has_rate(file: KerasFile, solver: Mapping[str, Any]) -> bool:
    """Whether the optimizer's second variable is its learning rate, as in Keras 3 unless that is a schedule."""
    if file.weights is None or file.major < 3 or isinstance(solver["learning_rate"], dict):
        return False
    paths = _variable_paths(file.weights)
    return len(paths) > 1 and file.weights.shape(paths[1]) == ()


def stored_rate(file: KerasFile, solver: Mapping[str, Any]) -> float | None:
    """The learning rate at the end of training, which the configuration lacks after `compile("adam")`."""
    if file.weights is None or not _has_rate(file, solver):
        return None
    return round_to_float32_digits(float(file.weights.array(_variable_paths(file.weights)[1]).item()))


def _momentum_product(solver: Mapping[str, Any], step: int) -> NDArray[Any]:
    """Product of all Nadam momenta μ so far, which some versions of Keras do not write."""
    count = np.arange(1, min(step, 2**20) + 1)
    decay = solver.get("momentum_decay", 1.0)
    return np.asarray(np.prod(solver.get("beta_1", 0.9) * (1 - 0.5 * 0.96 ** (count * decay))))


def _slots(
    type_: str,
    groups: Sequence[Sequence[str]],
    trained: Parameters,
    arrays: Sequence[NDArray[Any]],
    matrices: Set[str],
) -> dict[str, NDArray[Any]] | None:
    """The slots by name; None if number or shapes of the arrays do not fit the parameters."""
    expected = [
        (layer, variable, name)
        for group in groups
        for layer, variable in trained
        for name in group
        if optimizers.has_slot(type_, name, matrix=name_of(layer, variable) in matrices)
    ]
    if len(arrays) < len(expected) or any(array.size > 1 for array in arrays[len(expected) :]):
        return None
    slots: dict[str, NDArray[Any]] = {}
    for (layer, variable, name), array in zip(expected, arrays, strict=False):
        converted = convert_array(array, variable, layer)
        if converted is None or converted.shape != layer.shapes[layer.prefix + variable.state]:
            return None
        slots[f"solver/{name_of(layer, variable)}/{name}"] = converted
    return slots


def _unfactored(arrays: Sequence[NDArray[Any]], trained: Parameters, first: int) -> list[NDArray[Any]]:
    """Variables of Adafactor, with rows and columns repeated to the shapes of their parameters.

    The first `first` variables are unchanged. A vector has zeros as rows and columns, which its second moments replace.
    """
    full_size = list(arrays)
    for index in range(first, min(first + 3 * len(trained), len(full_size) - 2), 3):
        row, column, second = full_size[index : index + 3]
        if second.ndim < MATRIX:
            full_size[index : index + 2] = [second, second]
        elif row.shape == second.shape[:-1] and column.shape == (*second.shape[:-2], second.shape[-1]):
            full_size[index] = np.broadcast_to(row[..., None], second.shape)
            full_size[index + 1] = np.broadcast_to(column[..., None, :], second.shape)
    return full_size


def _refactored(
    slots: Mapping[str, NDArray[Any]], indices: Mapping[str, NDArray[Any]], importer: KerasImporter
) -> dict[str, NDArray[Any]]:
    """Adafactor's slots for the axes that netspec factors; `indices` is as in `averages_along`."""
    factored = dict(slots)
    unlike = []
    for key, second in slots.items():
        state, _, name = key.rpartition("/")
        axes = factored_axes(second.shape)
        if name != "second_moment":
            continue
        keys = [f"{state}/rows", f"{state}/columns"]
        factors = [factored.pop(array_key) for array_key in keys]
        if axes is not None:
            del factored[key]
            *averages, is_exact = averages_along(factors, second, [indices[array_key] for array_key in keys], axes)
            factored |= zip(keys, averages, strict=True)
            unlike += [] if is_exact else [state.removeprefix("solver/")]
    if unlike:
        importer.reading.notes.add(
            f"Adafactor keeps averages along the two largest axes, which are other ones than Keras's last two for "
            f"{', '.join(f'`{name}`' for name in unlike)}: they go on from the second moments that these stand for, "
            f"and steps differ from Keras's"
        )
    return factored


EXTRA_STEPS = 1000
"""Number of steps for which an imported training continues, since files do not state it."""
_IGNORED = (
    "name", "learning_rate", "lr", "weight_decay", "decay", "use_ema", "ema_momentum", "ema_overwrite_frequency",
    "loss_scale_factor", "gradient_accumulation_steps", "jit_compile", "is_legacy_optimizer", "clipnorm", "clipvalue",
    "global_clipnorm", "schedule_decay", "relative_step",
)  # fmt: skip


def training_of(
    file: KerasFile, importer: KerasImporter, targets: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields `solver` and `train` of a training file; empty if the file has no optimizer."""
    entry = _entry(file.training or {})
    if entry is None or not targets:
        return {}, {}
    try:
        solver, train = solver_of(entry, importer.reading)
    except UnsupportedFeature as reason:
        importer.reading.notes.add(f"there is no training file: {reason}")
        return {}, {}
    trained = trained_in_order(importer)
    if not trained:
        importer.reading.notes.add("no training file is written: no layer has parameters to train")
        return {}, {}
    rate = stored_rate(file, solver)
    if rate is not None:
        solver["learning_rate"] = rate
    if solver["type"] == "Muon":
        solver |= exclude_field(file, trained, importer.reading)
    return solver, train


def _entry(training: Mapping[str, Any]) -> Any:
    return training.get("optimizer") or training.get("optimizer_config")


def solver_of(entry: Any, reading: ReadContext) -> tuple[dict[str, Any], dict[str, Any]]:
    """The solver, and the fields of the training loop. Raises `UnsupportedFeature`."""
    train: dict[str, Any] = {}
    solver: dict[str, Any]
    if isinstance(entry, str):
        entry = {"class_name": entry, "config": {}}
    if not isinstance(entry, dict) or not isinstance(entry.get("config"), dict):
        raise UnsupportedFeature("the optimizer is not described")
    name, config = str(entry.get("class_name")), entry["config"]
    if reading.major == 2:  # from 2.9 on, Keras 2 registers its own optimizers with this prefix
        name = name.removeprefix("Custom>")
    refuse_foreign(name, entry.get("module", ""), entry.get("registered_name"))
    if name == "LossScaleOptimizer":
        solver, inner_train = solver_of(config.get("inner_optimizer"), reading)
        scale = {
            "initial": plain_value(config.get("initial_scale", 32768.0)),
            "growth_steps": config.get("dynamic_growth_steps"),
        }
        return solver, {**inner_train, "loss_scale": {key: value for key, value in scale.items() if value is not None}}
    type_ = next((value for value in optimizers.FIELDS if value.lower() == name.lower()), None)
    if type_ is None:
        raise UnsupportedFeature(f"there is no solver for the optimizer {name[:60]!r}")
    defaults = optimizers.FIELDS[type_]
    rate = config.get("learning_rate", config.get("lr", 0.01 if type_ == "SGD" else 0.001))
    old = optimizers.is_old(config)
    solver = {"type": type_, "learning_rate": _rate(rate, None if type_ == "Nadam" else config.get("decay"), reading)}
    for key, value in config.items():
        if (
            key in defaults
            and (value is not None or key in optimizers.NONE_VALUES)
            and plain_value(value) != defaults[key]
        ):
            solver[key] = optimizers.NONE_VALUES[key] if value is None else plain_value(value)
        elif key not in (*defaults, *_IGNORED, *MUON_FIELDS) and value not in (None, False, 0, 0.0):
            reading.notes.add(
                f"`{key}` of the optimizer {type_} is left out",
                "{count} arguments of the optimizer are left out", f"`{key}`",
            )  # fmt: skip
    coefficients = [plain_value(config.get(key, defaults)) for key, defaults in optimizers.MUON_COEFFICIENTS.items()]
    if type_ == "Muon" and coefficients != list(optimizers.MUON_COEFFICIENTS.values()):
        solver["ns_coefficients"] = coefficients
    if not solver.get("momentum", defaults.get("momentum")):  # Keras ignores it then
        solver.pop("nesterov", None)
    if old:
        solver |= {key: plain_value(value) for key, value in optimizers.old_fields(type_, config).items()}
    solver |= _weight_decay(type_, config) | _clipping(config, reading)
    if config.get("use_ema"):
        every = config.get("ema_overwrite_frequency")
        solver["ema"] = {"decay": plain_value(config.get("ema_momentum", 0.99))} | (
            {"overwrite_every": every} if every else {}
        )
    if config.get("gradient_accumulation_steps"):
        train["accumulate"] = config["gradient_accumulation_steps"]
    if config.get("loss_scale_factor"):
        train["loss_scale"] = plain_value(config["loss_scale_factor"])
    return solver, train


def _weight_decay(type_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    decay = plain_value(config.get("weight_decay"))
    default = optimizers.DECOUPLED_DECAYS.get(type_, 0.0)
    if type(decay) in (int, float) and decay != default:
        return {"weight_decay": decay} | (
            {} if type_ in optimizers.DECOUPLED_DECAYS else {"decoupled_weight_decay": True}
        )
    return {"weight_decay": 0.0} if default and decay is None and "weight_decay" in config else {}


def _clipping(config: Mapping[str, Any], reading: ReadContext) -> dict[str, Any]:
    limits = {key: plain_value(config[key]) for key in optimizers.CLIPPING if config.get(key) is not None}
    if reading.standalone:  # its `clipnorm` limits the norm of all gradients together, and 0 means no limit
        limits = {"global_clipnorm" if key == "clipnorm" else key: limit for key, limit in limits.items() if limit != 0}
    return limits


def _rate(rate: Any, decay: Any, reading: ReadContext) -> Any:
    """A learning rate: a number, or a schedule."""
    if isinstance(rate, dict):
        if decay:
            reading.notes.add("`decay` of the optimizer was left out: its learning rate is a schedule already")
        refuse_foreign(str(rate.get("class_name")), rate.get("module", ""), rate.get("registered_name"))
        return _schedule(str(rate.get("class_name")), rate.get("config") or {})
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        raise UnsupportedFeature(f"its learning rate is {str(rate)[:60]}")
    value = plain_value(float(rate))
    if isinstance(decay, (int, float)) and decay:  # at every step, as before Keras 2.11
        return {"type": "InverseTimeDecay", "initial": value, "decay_rate": plain_value(float(decay)), "decay_steps": 1}
    return value


def _schedule(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    fields = optimizers.SCHEDULES.get(name)
    if fields is None:
        raise UnsupportedFeature(f"there is no schedule {name[:60]!r}")
    given_fields = {new: config[old] for old, new in fields.items() if config.get(old) is not None}
    fields_here = {
        new: plain_value(value)
        for new, value in given_fields.items()
        if value is not False and (new, value) != ("alpha", 0.0)
    }
    steps, target = config.get("warmup_steps"), config.get("warmup_target")
    schedule = {"type": name, **fields_here}
    if name == "CosineDecay" and steps and target is not None:
        after_warmup = {**schedule, "initial": plain_value(float(target))}
        return {"type": "Warmup", "steps": steps, "initial": schedule["initial"], "then": after_warmup}
    return schedule


def train_file(importer: KerasImporter, solver: Mapping[str, Any], train: Mapping[str, Any], step: int) -> str:
    """The training file. Its samples come from Python, since files of Keras do not name the data."""
    fields = list(importer.draft.inputs)
    importer.reading.notes.add(
        f"the file does not name the data: pass {', '.join(fields)} by `netspec.train(…, samples={{…}})`, or "
        f"replace `source: python` in train.yaml"
    )
    data = {"source": "python", "fields": fields, "batch_size": 32, "shuffle": True}
    loop = ({"max_steps": step + EXTRA_STEPS} if step else {"max_epochs": 1}) | dict(train)
    return training_text(importer.draft.origin, "", {"train": data}, solver, loop)
