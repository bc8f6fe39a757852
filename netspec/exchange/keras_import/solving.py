"""The optimizer of a model → the solver of a training file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netspec.exchange import keras_solvers
from netspec.exchange.keras_import.archive import KerasFile
from netspec.exchange.keras_import.fields import Reading, Unsupported, plain, refuse_foreign
from netspec.exchange.keras_import.orthogonal import FIELDS as OF_MATRICES
from netspec.exchange.keras_import.orthogonal import exclusion
from netspec.exchange.keras_import.states import trained_in_order
from netspec.exchange.keras_import.translate import Translator
from netspec.schema.flow import flow

FURTHER = 1000
"""Steps that a training goes on for where the file says how far it had come: how far it shall go, no file says."""
_NOTHING = (
    "name", "learning_rate", "lr", "weight_decay", "decay", "use_ema", "ema_momentum", "ema_overwrite_frequency",
    "loss_scale_factor", "gradient_accumulation_steps", "jit_compile", "is_legacy_optimizer", "clipnorm", "clipvalue",
    "global_clipnorm", "schedule_decay", "relative_step",
)  # fmt: skip


def training_of(file: KerasFile, net: Translator, targets: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields `solver` and `train` of a training file; none where the file does not say the optimizer."""
    given = _optimizer(file.training or {})
    if given is None or not targets:
        return {}, {}
    try:
        solver, train = solver_of(given, net.reading)
    except Unsupported as reason:
        net.reading.note(f"there is no training file: {reason}")
        return {}, {}
    if solver["type"] == "Muon":
        solver |= exclusion(file, trained_in_order(net), net.reading)
    return solver, train


def _optimizer(config: Mapping[str, Any]) -> Any:
    return config.get("optimizer") or config.get("optimizer_config")


def solver_of(given: Any, reading: Reading) -> tuple[dict[str, Any], dict[str, Any]]:
    """The solver, and what of it belongs to the training loop. Raises `Unsupported`."""
    train: dict[str, Any] = {}
    solver: dict[str, Any]
    if isinstance(given, str):
        given = {"class_name": given, "config": {}}
    if not isinstance(given, dict) or not isinstance(given.get("config"), dict):
        raise Unsupported("the optimizer is not described")
    name, config = str(given.get("class_name")), given["config"]
    refuse_foreign(name, given.get("module"), given.get("registered_name"))
    if name == "LossScaleOptimizer":
        solver, more = solver_of(config.get("inner_optimizer"), reading)
        scale = {
            "initial": plain(config.get("initial_scale", 32768.0)),
            "growth_steps": config.get("dynamic_growth_steps"),
        }
        return solver, {**more, "loss_scale": {key: one for key, one in scale.items() if one is not None}}
    type_ = next(
        (one for one in keras_solvers.FIELDS if one.lower() == name.rpartition(">")[2].replace("_", "").lower()), None
    )
    if type_ is None:
        raise Unsupported(f"there is no solver for the optimizer {name[:60]!r}")
    usual = keras_solvers.FIELDS[type_]
    rate = config.get("learning_rate", config.get("lr", 0.01 if type_ == "SGD" else 0.001))
    solver = {"type": type_, "learning_rate": _rate(rate, config.get("decay"))}
    for key, value in config.items():
        if key in usual and (value is not None or key in keras_solvers.NONE) and plain(value) != usual[key]:
            solver[key] = keras_solvers.NONE[key] if value is None else plain(value)
        elif key not in (*usual, *_NOTHING, *OF_MATRICES) and value not in (None, False, 0, 0.0):
            reading.note(f"`{key}` of the optimizer {type_} was left out")
    told = [plain(config.get(key, usual)) for key, usual in keras_solvers.COEFFICIENTS.items()]
    if type_ == "Muon" and told != list(keras_solvers.COEFFICIENTS.values()):
        solver["ns_coefficients"] = told
    decay = plain(config.get("weight_decay"))
    if isinstance(decay, float) and decay != keras_solvers.DECAYS.get(type_, 0.0):
        solver |= {"weight_decay": decay} | ({} if type_ in keras_solvers.DECAYS else {"decoupled_weight_decay": True})
    elif type_ in keras_solvers.DECAYS and decay is None and "weight_decay" in config and keras_solvers.DECAYS[type_]:
        solver["weight_decay"] = 0.0
    solver |= {key: plain(config[key]) for key in keras_solvers.CLIPPING if config.get(key) is not None}
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


def _rate(rate: Any, decay: Any) -> Any:
    """A learning rate: a number, or a schedule."""
    if isinstance(rate, dict):
        return _schedule(str(rate.get("class_name")), rate.get("config") or {})
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        raise Unsupported(f"its learning rate is {str(rate)[:60]}")
    value = plain(float(rate))
    if isinstance(decay, (int, float)) and decay:  # of every step, as before Keras 2.11
        return {"type": "InverseTimeDecay", "initial": value, "decay_rate": plain(float(decay)), "decay_steps": 1}
    return value


def _schedule(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    fields = keras_solvers.SCHEDULES.get(name)
    if fields is None:
        raise Unsupported(f"there is no schedule {name[:60]!r}")
    told = {new: config[old] for old, new in fields.items() if config.get(old) is not None}
    given = {new: plain(one) for new, one in told.items() if one is not False and (new, one) != ("alpha", 0.0)}
    steps, target = config.get("warmup_steps"), config.get("warmup_target")
    made = {"type": name, **given}
    if name == "CosineDecay" and steps and target is not None:
        then = {**made, "initial": plain(float(target))}
        return {"type": "Warmup", "steps": steps, "initial": made["initial"], "then": then}
    return made


def text_of(net: Translator, solver: Mapping[str, Any], train: Mapping[str, Any], step: int) -> str:
    """The training file. Its samples come from Python, since no file of Keras says what it was trained on."""
    fields = list(net.draft.inputs)
    net.reading.note(
        f"the file does not say the data: give {', '.join(fields)} by `netspec.train(…, samples={{…}})`, or put a "
        f"source of train.yaml there"
    )
    data = {"source": "python", "fields": fields, "batch_size": 32, "shuffle": True}
    loop = ({"max_steps": step + FURTHER} if step else {"max_epochs": 1}) | dict(train)
    return "\n".join(
        ["netspec: 1", "net: net.yaml", "data:", f"  train: {flow(data)}", f"solver: {flow(solver)}",
         f"train: {flow(loop)}", ""]
    )  # fmt: skip
