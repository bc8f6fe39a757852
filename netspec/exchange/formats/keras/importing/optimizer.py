"""The optimizer of a model → the solver of a training file, and its variables → the states of the solver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.containers.hdf5 import Hdf5Reader
from netspec.exchange.formats.keras import optimizers
from netspec.exchange.formats.keras.importing.archive import KerasFile
from netspec.exchange.formats.keras.importing.fields import ReadContext, plain, refuse_foreign, tidy
from netspec.exchange.formats.keras.importing.importer import KerasImporter, LayerWeights
from netspec.exchange.formats.keras.importing.weights import fitted, flat_order
from netspec.exchange.formats.keras.names import KerasVariable, keras_snake, layer_type
from netspec.exchange.formats.keras.optimizers import MUON_COEFFICIENTS, averages_along, distinct_elements
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.types import factored_axes
from netspec.schema.specs.patterns import matches
from netspec.schema.yaml.flow_style import flow

if TYPE_CHECKING:
    from numpy.typing import NDArray


MUON_FIELDS = (*MUON_COEFFICIENTS, "exclude_layers", "exclude_embeddings")
"""Fields of Keras's Muon that differ here."""
MATRIX = 2
"""Rank of a matrix."""
MOST, LONGEST = 256, 200
"""Largest number of expressions, and of characters of one."""
USUAL = ("*embeddings",)
"""The default of `exclude` here."""
_READ = re.compile(r"\^?(\(\^\|/\))?([\w\-/ ]|\\[^\w])*(\(\.\*/\)\?[\w\-/ ]*)?\$?")
"""Expressions that are safe to search: text, anchors, and one gap of whole names."""
Parameters: TypeAlias = "Sequence[tuple[LayerWeights, KerasVariable]]"


def name_of(one: LayerWeights, variable: KerasVariable) -> str:
    """The name of a variable's parameter here."""
    return f"{one.draft.name}/{one.prefix}{variable.state}"


def exclusion(file: KerasFile, trained: Parameters, reading: ReadContext) -> dict[str, Any]:
    """The field `exclude`: matrices that Keras updates by AdamW."""
    there = matrices_there(file, trained, reading)
    here = [name_of(*pair) for pair in trained if _axes(*pair) == MATRIX]
    if all((name in there) != matches(USUAL, name) for name in here):
        return {}
    return {"exclude": [name for name in here if name not in there]}


def matrices_there(file: KerasFile, trained: Parameters, reading: ReadContext) -> list[str]:
    """The parameters that Keras updates as matrices."""
    config = optimizer_config(file.training or {})
    expressions = _expressions(config.get("exclude_layers"), reading)
    embeddings = config.get("exclude_embeddings", True)
    found = []
    for one, variable in trained:
        path = _path(one, variable)
        kept = any(text.search(path) for text in expressions) or (embeddings and "embedding" in path.lower())
        if _axes(one, variable) == MATRIX and not kept:
            found.append(name_of(one, variable))
    return found


def _axes(one: LayerWeights, variable: KerasVariable) -> int:
    """Rank of a parameter, here and in Keras."""
    return len(one.shapes[one.prefix + variable.state])


def optimizer_config(training: Mapping[str, Any]) -> Mapping[str, Any]:
    """The optimizer's fields, also inside a LossScaleOptimizer."""
    given = training.get("optimizer") or training.get("optimizer_config")
    config = given.get("config") if isinstance(given, dict) else None
    if isinstance(config, dict) and isinstance(config.get("inner_optimizer"), dict):
        config = config["inner_optimizer"].get("config")
    return config if isinstance(config, dict) else {}


def _path(one: LayerWeights, variable: KerasVariable) -> str:
    """The path of a variable in Keras, as far as it is known: `lstm/lstm_cell/kernel`."""
    cell = f"{keras_snake(layer_type(one.layer.class_name))}_cell"
    parts = [cell if part == "cell" else part for part in variable.group.split("/") if part]
    return "/".join([one.layer.path[-1], *parts, variable.name])[-LONGEST:]


def _expressions(given: Any, reading: ReadContext) -> list[re.Pattern[str]]:
    texts = [str(text) for text in given] if isinstance(given, (list, tuple)) else []
    read = [text for text in texts[:MOST] if len(text) <= LONGEST and _READ.fullmatch(text)]
    left = len(texts) - len(read)
    if left:
        reading.note(
            f"{left} of `exclude_layers` of the optimizer Muon {'was' if left == 1 else 'were'} left out: names of "
            f"layers or parts of them are read, of expressions no more than that"
        )
    return [re.compile(text) for text in read]


def trained_in_order(importer: KerasImporter) -> list[tuple[LayerWeights, KerasVariable]]:
    """The parameters that Keras trains, in its order."""
    turn = {layer: place for place, layer in enumerate(importer.graph.layers)}
    ordered = sorted(importer.wanted, key=lambda one: turn[one.layer])
    return [(one, v) for one, v in flat_order(ordered) if v is not None and v.trainable and not one.layer.frozen]


def slots_of(
    file: KerasFile, importer: KerasImporter, solver: Mapping[str, Any]
) -> tuple[dict[str, NDArray[Any]], int]:
    """The states of the solver, and its number of steps; empty if those of the file do not fit the net."""
    weights = file.weights
    found = [] if weights is None else _stored(weights)
    if weights is None or not found:
        return {}, 0
    if weights.shape(found[0]) != ():  # Keras 1 to 2.2 do not write it for RMSprop, Adagrad and Adadelta
        importer.reading.note("the states of the optimizer were left out: the file does not state the step")
        return {}, 0
    step = int(weights.array(found[0]).item())
    rest = [weights.array(path) for path in found[1 + _has_rate(file, solver) :]]
    if not rest and not step:
        return {}, 0
    type_ = str(solver["type"])
    old = optimizers.is_old(optimizer_config(file.training or {}))
    products: list[NDArray[Any]] = []
    if type_ == "Nadam":
        own = rest and rest[-1 * (not old)].shape == ()
        products = [rest.pop(-1 * (not old)) if own else _momentum_product(solver, step)]
    if type_ == "SGD" and not solver.get("momentum") and file.major < 3:
        rest = []  # velocities that no step uses
    trained = trained_in_order(importer)
    by_name = sorted(trained, key=lambda pair: pair[0].stored.get(pair[1].state, ""))
    parameters = (
        [by_name, trained] if file.version.startswith(("1.", "2.0.")) else [trained]
    )  # which sorted its variables
    matrices = set(matrices_there(file, trained, importer.reading)) if type_ == "Muon" else set()
    averages = len(trained) if solver.get("ema") else 0
    spread = _spread(rest, trained, averages) if type_ == "Adafactor" else rest
    groups = optimizers.stored_slot_groups(type_, solver, old=old)
    for several in parameters:
        slots = _laid(type_, groups, several, spread, matrices)
        if slots is not None:
            slots = {
                key: -one if optimizers.is_negated(type_, key.rpartition("/")[2]) else one for key, one in slots.items()
            }
            if type_ == "Adafactor":
                places = _laid(
                    type_, groups, several, _spread([*map(distinct_elements, rest)], trained, averages), matrices
                )
                slots = _factored(slots, places or {}, importer)
            if products:
                slots[optimizers.MOMENTUM_PRODUCT] = products[0].astype("float32")
            return slots, step
    importer.reading.note("the states of the optimizer do not fit the net and are left out")
    return {}, 0


def _stored(weights: Hdf5Reader) -> list[str]:
    """Paths of the optimizer's variables, in its order."""
    if weights.attribute("optimizer_weights", "weight_names"):
        names = weights.attribute("optimizer_weights", "weight_names")
        return [path for name in names if weights.holds(path := f"optimizer_weights/{name}")]
    group = "optimizer/inner_optimizer/vars" if "optimizer/inner_optimizer/vars" in weights else "optimizer/vars"
    numbers = sorted(int(name) for name in weights.below(group) if name.isdigit())
    return [f"{group}/{number}" for number in numbers]


def _has_rate(file: KerasFile, solver: Mapping[str, Any]) -> bool:
    """Whether the optimizer's second variable is its learning rate, as in Keras 3 unless that is a schedule."""
    if file.weights is None or file.major < 3 or isinstance(solver["learning_rate"], dict):
        return False
    found = _stored(file.weights)
    return len(found) > 1 and file.weights.shape(found[1]) == ()


def stored_rate(file: KerasFile, solver: Mapping[str, Any]) -> float | None:
    """The learning rate at the end of training, which the configuration lacks after `compile("adam")`."""
    if file.weights is None or not _has_rate(file, solver):
        return None
    return tidy(float(file.weights.array(_stored(file.weights)[1]).item()))


def _momentum_product(solver: Mapping[str, Any], step: int) -> NDArray[Any]:
    """Product of all Nadam momenta μ so far, which some versions of Keras do not write."""
    import numpy as np

    count = np.arange(1, min(step, 2**20) + 1)
    decay = solver.get("momentum_decay", 1.0)
    return np.asarray(np.prod(solver.get("beta_1", 0.9) * (1 - 0.5 * 0.96 ** (count * decay))))


def _laid(
    type_: str,
    groups: Sequence[Sequence[str]],
    trained: Parameters,
    arrays: Sequence[NDArray[Any]],
    matrices: Set[str],
) -> dict[str, NDArray[Any]] | None:
    """The slots by name, if there are as many arrays, of the shapes of the parameters."""
    expected = [
        (one, variable, name)
        for group in groups
        for one, variable in trained
        for name in group
        if optimizers.has_slot(type_, name, matrix=name_of(one, variable) in matrices)
    ]
    if len(arrays) < len(expected) or any(array.size > 1 for array in arrays[len(expected) :]):
        return None
    found: dict[str, NDArray[Any]] = {}
    for (one, variable, name), array in zip(expected, arrays, strict=False):
        made = fitted(array, variable, one)
        if made is None or made.shape != one.shapes[one.prefix + variable.state]:
            return None
        found[f"solver/{name_of(one, variable)}/{name}"] = made
    return found


def _spread(arrays: Sequence[NDArray[Any]], trained: Parameters, first: int) -> list[NDArray[Any]]:
    """Variables of Adafactor, with rows and columns repeated to the shapes of their parameters.

    `first` are earlier variables; a vector, with zeros as rows and columns, has its second moments there too.
    """
    import numpy as np

    found = list(arrays)
    for place in range(first, min(first + 3 * len(trained), len(found) - 2), 3):
        row, column, second = found[place : place + 3]
        if second.ndim < MATRIX:
            found[place : place + 2] = [second, second]
        elif row.shape == second.shape[:-1] and column.shape == (*second.shape[:-2], second.shape[-1]):
            found[place] = np.broadcast_to(row[..., None], second.shape)
            found[place + 1] = np.broadcast_to(column[..., None, :], second.shape)
    return found


def _factored(
    slots: Mapping[str, NDArray[Any]], places: Mapping[str, NDArray[Any]], importer: KerasImporter
) -> dict[str, NDArray[Any]]:
    """Adafactor's slots of the axes that are factored here, of those that are spread; `places` as `refactored` has."""
    found = dict(slots)
    others = []
    for key, second in slots.items():
        state, _, name = key.rpartition("/")
        axes = factored_axes(second.shape)
        if name != "second_moment":
            continue
        keys = [f"{state}/rows", f"{state}/columns"]
        factors = [found.pop(one) for one in keys]
        if axes is not None:
            del found[key]
            *averages, same = averages_along(factors, second, [places[one] for one in keys], axes)
            found |= zip(keys, averages, strict=True)
            others += [] if same else [state.removeprefix("solver/")]
    if others:
        importer.reading.note(
            f"Adafactor keeps averages along the two largest axes, which are other ones than Keras's last two for "
            f"{', '.join(f'`{name}`' for name in others)}: they go on from the second moments that these stand for, "
            f"and steps differ from Keras's"
        )
    return found


FURTHER = 1000
"""Number of steps for which an imported training continues, since files do not state it."""
_NOTHING = (
    "name", "learning_rate", "lr", "weight_decay", "decay", "use_ema", "ema_momentum", "ema_overwrite_frequency",
    "loss_scale_factor", "gradient_accumulation_steps", "jit_compile", "is_legacy_optimizer", "clipnorm", "clipvalue",
    "global_clipnorm", "schedule_decay", "relative_step",
)  # fmt: skip


def training_of(
    file: KerasFile, importer: KerasImporter, targets: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields `solver` and `train` of a training file; empty if the file has no optimizer."""
    given = _optimizer(file.training or {})
    if given is None or not targets:
        return {}, {}
    try:
        solver, train = solver_of(given, importer.reading)
    except UnsupportedFeature as reason:
        importer.reading.note(f"there is no training file: {reason}")
        return {}, {}
    trained = trained_in_order(importer)
    if not trained:
        importer.reading.note("no training file is written: no layer has parameters to train")
        return {}, {}
    rate = stored_rate(file, solver)
    if rate is not None:
        solver["learning_rate"] = rate
    if solver["type"] == "Muon":
        solver |= exclusion(file, trained, importer.reading)
    return solver, train


def _optimizer(config: Mapping[str, Any]) -> Any:
    return config.get("optimizer") or config.get("optimizer_config")


def solver_of(given: Any, reading: ReadContext) -> tuple[dict[str, Any], dict[str, Any]]:
    """The solver, and the fields of the training loop. Raises `UnsupportedFeature`."""
    train: dict[str, Any] = {}
    solver: dict[str, Any]
    if isinstance(given, str):
        given = {"class_name": given, "config": {}}
    if not isinstance(given, dict) or not isinstance(given.get("config"), dict):
        raise UnsupportedFeature("the optimizer is not described")
    name, config = str(given.get("class_name")), given["config"]
    if reading.major == 2:  # from 2.9 on, Keras 2 registers its own optimizers with this prefix
        name = name.removeprefix("Custom>")
    refuse_foreign(name, given.get("module", ""), given.get("registered_name"))
    if name == "LossScaleOptimizer":
        solver, more = solver_of(config.get("inner_optimizer"), reading)
        scale = {
            "initial": plain(config.get("initial_scale", 32768.0)),
            "growth_steps": config.get("dynamic_growth_steps"),
        }
        return solver, {**more, "loss_scale": {key: one for key, one in scale.items() if one is not None}}
    type_ = next((one for one in optimizers.FIELDS if one.lower() == name.lower()), None)
    if type_ is None:
        raise UnsupportedFeature(f"there is no solver for the optimizer {name[:60]!r}")
    usual = optimizers.FIELDS[type_]
    rate = config.get("learning_rate", config.get("lr", 0.01 if type_ == "SGD" else 0.001))
    old = optimizers.is_old(config)
    solver = {"type": type_, "learning_rate": _rate(rate, None if type_ == "Nadam" else config.get("decay"), reading)}
    for key, value in config.items():
        if key in usual and (value is not None or key in optimizers.NONE_VALUES) and plain(value) != usual[key]:
            solver[key] = optimizers.NONE_VALUES[key] if value is None else plain(value)
        elif key not in (*usual, *_NOTHING, *MUON_FIELDS) and value not in (None, False, 0, 0.0):
            reading.note(
                f"`{key}` of the optimizer {type_} is left out",
                "{count} arguments of the optimizer are left out", f"`{key}`",
            )  # fmt: skip
    told = [plain(config.get(key, usual)) for key, usual in optimizers.MUON_COEFFICIENTS.items()]
    if type_ == "Muon" and told != list(optimizers.MUON_COEFFICIENTS.values()):
        solver["ns_coefficients"] = told
    if not solver.get("momentum", usual.get("momentum")):  # Keras ignores it then
        solver.pop("nesterov", None)
    if old:
        solver |= {key: plain(value) for key, value in optimizers.old_fields(type_, config).items()}
    solver |= _weight_decay(type_, config) | _clipping(config, reading)
    if config.get("use_ema"):
        every = config.get("ema_overwrite_frequency")
        solver["ema"] = {"decay": plain(config.get("ema_momentum", 0.99))} | (
            {"overwrite_every": every} if every else {}
        )
    if config.get("gradient_accumulation_steps"):
        train["accumulate"] = config["gradient_accumulation_steps"]
    if config.get("loss_scale_factor"):
        train["loss_scale"] = plain(config["loss_scale_factor"])
    return solver, train


def _weight_decay(type_: str, config: Mapping[str, Any]) -> dict[str, Any]:
    decay = plain(config.get("weight_decay"))
    usual = optimizers.DECOUPLED_DECAYS.get(type_, 0.0)
    if type(decay) in (int, float) and decay != usual:
        return {"weight_decay": decay} | (
            {} if type_ in optimizers.DECOUPLED_DECAYS else {"decoupled_weight_decay": True}
        )
    return {"weight_decay": 0.0} if usual and decay is None and "weight_decay" in config else {}


def _clipping(config: Mapping[str, Any], reading: ReadContext) -> dict[str, Any]:
    found = {key: plain(config[key]) for key in optimizers.CLIPPING if config.get(key) is not None}
    if reading.standalone:  # there, `clipnorm` limits the norm of all gradients together, and 0 means no limit
        found = {"global_clipnorm" if key == "clipnorm" else key: limit for key, limit in found.items() if limit != 0}
    return found


def _rate(rate: Any, decay: Any, reading: ReadContext) -> Any:
    """A learning rate: a number, or a schedule."""
    if isinstance(rate, dict):
        if decay:
            reading.note("`decay` of the optimizer was left out: its learning rate is a schedule already")
        refuse_foreign(str(rate.get("class_name")), rate.get("module", ""), rate.get("registered_name"))
        return _schedule(str(rate.get("class_name")), rate.get("config") or {})
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        raise UnsupportedFeature(f"its learning rate is {str(rate)[:60]}")
    value = plain(float(rate))
    if isinstance(decay, (int, float)) and decay:  # at every step, as before Keras 2.11
        return {"type": "InverseTimeDecay", "initial": value, "decay_rate": plain(float(decay)), "decay_steps": 1}
    return value


def _schedule(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    fields = optimizers.SCHEDULES.get(name)
    if fields is None:
        raise UnsupportedFeature(f"there is no schedule {name[:60]!r}")
    told = {new: config[old] for old, new in fields.items() if config.get(old) is not None}
    given = {new: plain(one) for new, one in told.items() if one is not False and (new, one) != ("alpha", 0.0)}
    steps, target = config.get("warmup_steps"), config.get("warmup_target")
    made = {"type": name, **given}
    if name == "CosineDecay" and steps and target is not None:
        then = {**made, "initial": plain(float(target))}
        return {"type": "Warmup", "steps": steps, "initial": made["initial"], "then": then}
    return made


def text_of(importer: KerasImporter, solver: Mapping[str, Any], train: Mapping[str, Any], step: int) -> str:
    """The training file. Its samples come from Python, since files of Keras do not name the data."""
    fields = list(importer.draft.inputs)
    importer.reading.note(
        f"the file does not name the data: pass {', '.join(fields)} by `netspec.train(…, samples={{…}})`, or put a "
        f"source of train.yaml there"
    )
    data = {"source": "python", "fields": fields, "batch_size": 32, "shuffle": True}
    loop = ({"max_steps": step + FURTHER} if step else {"max_epochs": 1}) | dict(train)
    return "\n".join(
        ["netspec: 1", "net: net.yaml", "data:", f"  train: {flow(data)}", f"solver: {flow(solver)}",
         f"train: {flow(loop)}", ""]
    )  # fmt: skip
