"""Text from a net that was trained to predict the next token, one token at a time.

A net that reads a window of tokens is turned into one that reads a single token: recurrent layers pass their states on,
attention keeps the keys and values of previous tokens (`LayerSpec.step_states`). A token then costs one step instead of
a window. Whether both nets agree is checked before anything is generated; a net that cannot be stepped, such as one
with convolutions over time, computes the full window for each token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from netspec.compile import Compiler, ProgramKind
from netspec.errors import InputError, NetspecError
from netspec.graph.value import Value
from netspec.layers.base import Builder, LayerSpec, StepPosition, StepStates
from netspec.schema.specs.links import LayerLink, resolve_names
from netspec.schema.specs.net import InputSpec, NetSpec
from netspec.training.inference.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

POSITION = "$position"
"""Name of the input of a step net that has the step's position."""
CAUSAL_HINT = "use recurrent layers in one direction, or `use_causal_mask: true` in attention"
TOLERANCE = 1e-3
"""Largest difference between logits that are equal but for rounding, relative to the largest logit.

The window and its steps add up the same products in different orders in float32 or bfloat16; a layer that mixes steps
differs far more.
"""


@dataclass(frozen=True)
class Sampling:
    """Settings for drawing the next token from the net's probabilities."""

    temperature: float = 1.0
    """Divisor of the logits; 0: always the most probable token."""
    top_k: int | None = None
    """Draw from the k most probable tokens."""
    top_p: float | None = None
    """Draw from the most probable tokens whose probabilities reach this sum. Holtzman et al. 2020, arXiv:1904.09751."""

    def __post_init__(self) -> None:
        checks = [
            (self.temperature >= 0, "temperature", "0 or more", self.temperature),
            (self.top_k is None or self.top_k >= 1, "top-k", "1 or more", self.top_k),
            (self.top_p is None or 0 < self.top_p <= 1, "top-p", "above 0, and at most 1", self.top_p),
        ]
        for holds, name, expected, value in checks:
            if not holds:
                raise InputError(f"the {name} is out of range", expected=expected, got=str(value))

    def draw(self, logits: Array, random: np.random.Generator) -> int:
        """Draw a token from logits (V,)."""
        scores = logits.astype(np.float64)
        if self.temperature == 0:
            return int(scores.argmax())
        scores = scores / self.temperature
        order = np.argsort(-scores, kind="stable")[: self.top_k]
        probabilities = np.exp(scores[order] - scores[order[0]])
        probabilities /= probabilities.sum()
        if self.top_p is not None:
            count = int(np.searchsorted(np.cumsum(probabilities), self.top_p)) + 1
            order, probabilities = order[:count], probabilities[:count] / probabilities[:count].sum()
        return int(
            order[np.searchsorted(np.cumsum(probabilities), random.random(), side="right").clip(0, len(order) - 1)]
        )


class NextTokenNet(Protocol):
    """Computes the logits of the next token, token by token."""

    def restart(self) -> None:
        """Forget all tokens."""
        ...

    def make_room(self) -> Sequence[int]:
        """Forget a full sequence; return the tokens of its second half, to be read again before the next one."""
        ...

    def logits_after(self, token: int) -> Array:
        """Read a token; return the logits (V,) of the one after it."""
        ...

    def save_state(self) -> Any:
        """Return what the net remembers of the tokens that it has read."""
        ...

    def restore_state(self, state: Any) -> None:
        """Return to the tokens that had been read when `save_state` returned `state`."""
        ...


class TokenGenerator(ABC):
    """Generates a text's tokens, one after another, with a net that computes the logits of the next one."""

    net: NextTokenNet
    """The net that computes the logits."""
    end: int | None = None
    """The token that ends a text; None if texts have no end."""
    max_tokens: int | None = None
    """The largest number of tokens that can be generated; None: any number."""

    @abstractmethod
    def read(self, prompt: Sequence[int]) -> Array:
        """Read a prompt; return the logits (V,) of the first token to generate."""

    def tokens(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Iterator[int]:
        """Yield the tokens of a text up to its end, or without end. The same seed yields the same tokens."""
        random = np.random.Generator(np.random.Philox(seed))
        logits = self.read(prompt)
        for number in count(1):
            token = sampling.draw(logits, random)
            if token == self.end:
                return
            yield token
            if number == self.max_tokens:
                return
            logits = self.logits_after(token)

    def logits_after(self, token: int) -> Array:
        """Read a token; return the logits (V,) of the one after it. Raises `InputError` if one of them is NaN."""
        for earlier in self.net.make_room():
            self.net.logits_after(earlier)
        logits = self.net.logits_after(token)
        if np.isnan(logits).any():
            raise InputError("the net computes logits that are not finite", hint="`netspec test` shows its loss")
        return logits


class LanguageModelGenerator(TokenGenerator):
    """Generates tokens with a net that was trained on the next token of windows of text.

    A token costs a single step if possible. Raises `InputError` if the net does not read one window of tokens, does not
    have logits for each of its tokens, or reads later ones.
    """

    def __init__(self, model: Model) -> None:
        self.input, self.steps, self.output = _window_of(model)
        if reads_later_tokens(model.compiler, self.input, self.output):
            raise InputError(
                f"the net reads later tokens of `{self.input}`, which are unknown when it writes a text",
                hint=CAUSAL_HINT,
            )
        window = TokenWindow(model, self.input, self.steps, self.output)
        stepped = _checked_step_net(model, window)
        self.net = window if stepped is None else stepped

    @property
    def is_incremental(self) -> bool:
        """Whether a token costs a step instead of a window."""
        return isinstance(self.net, StepNet)

    @property
    def kept_tokens(self) -> int | None:
        """Number of tokens of a full window that the next token depends on; None if it depends on all tokens."""
        return self.net.kept_tokens if isinstance(self.net, StepNet) else self.steps - 1

    @property
    def unlimited_step_net(self) -> StepNet | None:
        """The single-step net whose states remember all tokens; None if only a number of tokens is remembered."""
        return self.net if isinstance(self.net, StepNet) and not self.net.has_end else None

    def read(self, prompt: Sequence[int]) -> Array:
        """Read a prompt from the beginning; return the logits (V,) of the token after it."""
        if not len(prompt):
            raise InputError("the prompt is empty", expected="one token or more to start from")
        self.net.restart()
        for token in prompt:
            logits = self.logits_after(token)
        return logits


def _window_of(model: Model) -> tuple[str, int, str]:
    """Return the input, the window's length, and the output of a net for the next token."""
    names = list(model.compiler.graph(ProgramKind.PREDICT, 1).inputs())
    inputs = {name: model.spec.inputs[name] for name in names if name in model.spec.inputs}
    windows = [name for name, field in inputs.items() if len(field.shape) == 1 and field.dtype != "float32"]
    if len(names) != 1 or len(windows) != 1:
        described = ", ".join(f"`{name}`: {field.dtype} {list(field.shape)}" for name, field in inputs.items())
        expected = "one input of integers with one axis, such as `text: {shape: [64], dtype: int32}`"
        raise InputError("the net does not read a window of tokens", expected=expected, got=described or "no input")
    steps = inputs[windows[0]].shape[0]
    return windows[0], steps, logits_output(model, steps)


def logits_output(model: Model, steps: int, problem: str = "the net is not a language model") -> str:
    """Return the name of a net's only output, logits (N, steps, V). Raises `InputError`, with `problem`, for others."""
    outputs = {name: value.shape for name, value in model.compiler.net_graph(ProgramKind.PREDICT, 1).outputs.items()}
    name, shape = next(iter(outputs.items()))
    if len(outputs) != 1 or len(shape) != 3 or shape[1] != steps:
        raise InputError(
            problem,
            expected=f"one output (batch, {steps}, tokens), the logits of the next token",
            got=", ".join(f"`{output}`: {list(sizes)}" for output, sizes in outputs.items()),
        )  # fmt: skip
    losses = [loss.fields for loss in resolve_names(model.spec).losses if loss.sources[:1] == (name,)]
    if any(getattr(loss, "from_logits", None) is False for loss in losses):
        raise InputError(
            f"the loss of `{name}` reads probabilities, and texts are generated from logits",
            expected="`from_logits: true` in the loss, and no softmax before it",
        )
    return name


def reads_later_tokens(compiler: Compiler, name: str, output: str) -> bool:
    """Return whether an output (N, T, …) depends on later tokens of the input `name` (N, T) than its own position's.

    Two windows are compared that agree in the first half, and in no token of the second half.
    """
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for label, value in compiler.graph(ProgramKind.PREDICT, 1).inputs().items():
        domain, shape = compiler.domains.get(label), value.shape
        drawn = random.normal(size=shape) if domain is None else random.integers(domain.low, domain.high, shape)
        inputs[label] = drawn.astype(compiler.spec.inputs[label].dtype)
    domain, (_, steps) = compiler.domains.get(name), inputs[name].shape
    if domain is None or steps == 1 or domain.high - domain.low == 1:
        return False
    half = (steps + 1) // 2
    changed = inputs[name].copy()
    changed[:, half:] = domain.low + (changed[:, half:] - domain.low + 1) % (domain.high - domain.low)
    program = compiler.program(ProgramKind.PREDICT, 1)
    before, after = (program({**inputs, name: tokens})[output][0, :half] for tokens in (inputs[name], changed))
    return bool(np.abs(before - after).max() > TOLERANCE * max(1.0, float(np.abs(before).max())))


class TokenWindow:
    """Computes the full window for each token."""

    def __init__(self, model: Model, name: str, steps: int, output: str) -> None:
        self._model, self.name, self.steps, self.output = model, name, steps, output
        self._dtype = model.spec.inputs[name].dtype
        self._tokens: list[int] = []
        self.other_inputs: Mapping[str, Array] = {}
        """Arrays (1, …) for the net's other inputs, by name."""

    def restart(self) -> None:
        """Forget all tokens."""
        self._tokens = []

    def make_room(self) -> Sequence[int]:
        """Forget nothing."""
        return ()  # a full window slides

    def logits_after(self, token: int) -> Array:
        """Read a token; return the logits (V,) of the one after it."""
        self._tokens = [*self._tokens, token][-self.steps :]
        logits: Array = self.logits(self._tokens)[len(self._tokens) - 1]
        return logits

    def save_state(self) -> list[int]:
        """Return the tokens that have been read."""
        return self._tokens  # not a copy: the list is never modified

    def restore_state(self, state: list[int]) -> None:
        """Return to the tokens that `save_state` returned."""
        self._tokens = state

    def logits(self, tokens: Sequence[int]) -> Array:
        """Return the logits (T, V) of a window that begins with some tokens."""
        window = np.zeros((1, self.steps), self._dtype)
        window[0, : len(tokens)] = tokens
        logits: Array = self._model.predict({self.name: window, **self.other_inputs})[self.output][0]
        return logits


class _StepLayer(LayerSpec):
    """A layer for one step: reads the step, its states and the position; returns the output, and states or rows."""

    type: Literal["_StepLayer"] = "_StepLayer"
    layer: LayerSpec
    steps: int
    states: tuple[str, ...]

    def output_names(self) -> tuple[str, ...]:
        """The output, and the states."""
        return ("output", *self.states)

    def build(self, builder: Builder, x: Value, *others: Value) -> tuple[Value, ...]:
        """x: (N, 1, …), states, position (N,) → (N, 1, …), states or their new rows."""
        *states, position = others
        return self.layer.build_step(builder, x, states, StepPosition(position, self.steps))


class StepNet:
    """Computes one step for each token. A sequence that has reached its last position restarts with its second half."""

    def __init__(self, model: Model, window: TokenWindow) -> None:
        self._input, self._steps, self.output = window.name, window.steps, window.output
        layers = resolve_names(model.spec).layers
        self._states = _states_of(layers, self._steps)
        self._dtype = model.spec.inputs[self._input].dtype
        net = self._net(model.spec, layers)
        self.compiler = Compiler(net, dtype=model.compiler.precision, device=model.compiler.device)
        for name, array in model.compiler.weights().items():
            if name in self.compiler.info:
                self.compiler.assign(name, array)
        self._program = self.compiler.program(ProgramKind.PREDICT, 1)
        self._inputs = set(self.compiler.graph(ProgramKind.PREDICT, 1).inputs())
        self.has_end = any(states.needs_position for states in self._states.values())
        self._values: dict[str, Array] = {}
        self._tokens: list[int] = []
        self.restart()

    def _net(self, net: NetSpec, layers: Sequence[LayerLink]) -> NetSpec:
        """Return the single-step net."""
        inputs = {self._input: InputSpec(shape=(1,), dtype=self._dtype), POSITION: InputSpec(shape=(), dtype="int32")}
        outputs = [self.output]
        entries: list[LayerSpec] = []
        for link in layers:
            states = self._states.get(link.name)
            layer, sources = link.fields, list(link.sources)
            assert isinstance(layer, LayerSpec)
            if states is not None:
                names = states.names
                shapes = {**states.replaced, **states.appended}
                inputs |= {_state_input(link.name, name): InputSpec(shape=shapes[name]) for name in names}
                outputs += [f"{link.name}.{name}" for name in names]
                sources = [link.sources[0], *(_state_input(link.name, name) for name in names), POSITION]
                layer = _StepLayer.model_construct(
                    **_common_fields(layer), layer=layer, steps=self._steps, states=names
                )
            entries.append(layer.model_copy(update={"name": link.name, "from_": sources}))
        changed = {"inputs": inputs, "layers": entries, "outputs": outputs, "losses": [], "metrics": [], "expect": None}
        return net.model_copy(update=changed)

    @property
    def replaced_states(self) -> dict[str, str]:
        """Names of the outputs with the states after a step, by the inputs with the states before it."""
        return {
            _state_input(layer, name): f"{layer}.{name}"
            for layer, states in self._states.items()
            for name in states.replaced
        }

    @property
    def kept_tokens(self) -> int | None:
        """Number of tokens of a full window that are kept; None if the states remember all tokens."""
        return self._steps - self._steps // 2 if self.has_end else None

    def restart(self) -> None:
        """Forget all tokens."""
        self._tokens = []
        self._values = {
            _state_input(layer, name): np.zeros((1, *shape), np.float32)
            for layer, states in self._states.items()
            for name, shape in {**states.replaced, **states.appended}.items()
        }

    def make_room(self) -> Sequence[int]:
        """Forget a full sequence; return the tokens of its second half, to be read again before the next one."""
        if not self.has_end or len(self._tokens) < self._steps:
            return ()
        tokens = self._tokens[self._steps // 2 :]
        self.restart()
        return tokens

    def logits_after(self, token: int) -> Array:
        """Read a token; return the logits (V,) of the one after it."""
        position = len(self._tokens)
        values = {
            self._input: np.full((1, 1), token, self._dtype),
            POSITION: np.full(1, position, np.int32),
            **self._values,
        }
        results = self._program({name: array for name, array in values.items() if name in self._inputs})
        for layer, states in self._states.items():
            for name in states.replaced:
                self._values[_state_input(layer, name)] = results[f"{layer}.{name}"]
            for name in states.appended:
                self._values[_state_input(layer, name)][:, position] = results[f"{layer}.{name}"][:, 0]
        self._tokens.append(token)
        logits: Array = results[self.output].reshape(-1)
        return logits

    def save_state(self) -> tuple[list[int], dict[str, Array]]:
        """Return the tokens that have been read, and the states after them."""
        return [*self._tokens], {name: array.copy() for name, array in self._values.items()}

    def restore_state(self, state: tuple[list[int], dict[str, Array]]) -> None:
        """Return to the tokens and states that `save_state` returned."""
        self._tokens = [*state[0]]
        self._values = {name: array.copy() for name, array in state[1].items()}


def _state_input(layer: str, state: str) -> str:
    """Return the name of the input that has a state before the step."""
    return f"{layer}.{state}.before"


def _common_fields(layer: LayerSpec) -> dict[str, Any]:
    """Return the fields of a layer that all layers have."""
    return {name: getattr(layer, name) for name in LayerSpec.model_fields}


def _states_of(layers: Sequence[LayerLink], steps: int) -> dict[str, StepStates]:
    """Return the states of the layers that read their one input step by step."""
    states: dict[str, StepStates] = {}
    for link in layers:
        assert isinstance(link.fields, LayerSpec)
        step_states = link.fields.step_states(steps) if len(set(link.sources)) == 1 else None
        if step_states is not None:
            states[link.name] = step_states
    return states


def _checked_step_net(model: Model, window: TokenWindow) -> StepNet | None:
    """Return the single-step net if its logits for a random window are those of the full net."""
    try:
        stepped = StepNet(model, window)
    except NetspecError:  # a layer that needs the full window
        return None
    vocabulary = model.compiler.net_graph(ProgramKind.PREDICT, 1).outputs[window.output].shape[2]
    domain = model.compiler.domains.get(window.name)
    tokens = np.random.default_rng(0).integers(0, domain.high if domain else vocabulary, window.steps).tolist()
    expected = window.logits(tokens)
    logits = np.stack([stepped.logits_after(token) for token in tokens])
    stepped.restart()
    agrees = np.abs(logits - expected).max() <= TOLERANCE * max(1.0, float(np.abs(expected).max()))
    return stepped if agrees else None
