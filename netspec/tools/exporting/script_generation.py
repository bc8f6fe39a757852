"""The lines of an exported model's script that write a text token by token, as `netspec generate` does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from netspec.compile import ProgramKind
from netspec.data.sources.text import Text
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.data.text.tokens import UNKNOWN, Tokenizer, UnknownText
from netspec.errors import InputError
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.exporting.text_vocabulary import VOCABULARY, TextInput
from netspec.tools.inference.generate import decoded_pieces
from netspec.tools.inference.sampling_defaults import SEED, TEMPERATURE, TOKENS
from netspec.training.generation.encoder_decoder import EncoderDecoderGenerator, decoder_columns
from netspec.training.generation.language_model import LanguageModelGenerator, Sampling, StepNet
from netspec.training.inference.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Samples = NDArray[Any]

EXAMPLE_TOKENS, EXAMPLE_TEMPERATURE = 60, 0.8
"""Settings of the text of a language model in the card; prompt and text fit into the window."""


@dataclass(frozen=True)
class ScriptGeneration(ABC):
    """A model with which the script generates text."""

    prompt: TextInput
    """The input that takes the tokens of the prompt."""
    output: str
    """Name of the output, whose values are (N, steps, tokens)."""
    batch: int
    """Number of samples that the model takes at a time."""
    types: Mapping[str, str]
    """Element types of the inputs."""
    example: tuple[str, str] | None
    """A prompt from the data, and the text that the script prints for it; None if the data is not available."""

    @property
    def texts(self) -> Sequence[TextInput]:
        """The inputs that take tokens."""
        return [self.prompt]

    @property
    def example_options(self) -> Mapping[str, float]:
        """Options of the example, by name."""
        return {}

    @property
    def step_net(self) -> StepNet | None:
        """The single-step net that the script runs in place of the net; None if it runs the net on windows."""
        return None

    @property
    @abstractmethod
    def left_out(self) -> list[str]:
        """Parts that the model lacks, a line each."""

    @abstractmethod
    def meaning(self, name: str) -> str:
        """Return what the values of an input are."""

    @abstractmethod
    def functions(self) -> Iterator[str]:
        """Yield the lines of the functions of the script, the last of which is `generate`."""

    @abstractmethod
    def main(self) -> Iterator[str]:
        """Yield the lines that read the arguments of the script, and print the text."""

    def _main(self, help_: str, options: Sequence[str], text: str) -> Iterator[str]:
        yield 'if __name__ == "__main__":'
        yield "    parser = argparse.ArgumentParser()"
        yield f'    parser.add_argument("--prompt", metavar="TEXT", required=True, help="{help_}, or - (stdin)")'
        yield from (f"    parser.add_argument({option})" for option in options)
        yield '    parser.add_argument("--json", action="store_true", help="print a JSON object")'
        yield "    arguments = vars(parser.parse_args())"
        yield '    as_json = arguments.pop("json")'
        yield "    try:"
        yield '        if arguments["prompt"] == "-":'
        yield "            content = sys.stdin.buffer.read().decode()"
        yield r'            arguments["prompt"] = content.removesuffix("\n").removesuffix("\r")'
        yield "        text = generate(**arguments)"
        yield "        answer = json.dumps({'prompt': arguments['prompt'], 'text': text}, ensure_ascii=False)"
        yield f"        print(answer if as_json else {text})"
        yield "    except ValueError as error:"
        yield '        print(f"error: {error}", file=sys.stderr)'
        yield "        sys.exit(2)"

    def _array(self, text: TextInput) -> str:
        """Return an expression for an array of padding."""
        arguments = f'({self.batch}, {text.length}), {text.padding}, "{self.types[text.name]}"'
        return f"np.full({arguments})"


@dataclass(frozen=True)
class ScriptLanguageModel(ScriptGeneration):
    """A language model, which continues the prompt."""

    is_probability: bool
    """Whether the output has probabilities, in place of logits."""
    kept: int | None
    """Number of tokens that are kept when a window is full; None if the single-step net remembers all tokens."""
    unlimited_step_net: StepNet | None
    """The single-step net that remembers all tokens; None if there is none."""
    example_tokens: int
    """Number of tokens of the text of the example."""

    @property
    def example_options(self) -> Mapping[str, float]:
        """Options of the example, by name."""
        return {"temperature": EXAMPLE_TEMPERATURE, "tokens": self.example_tokens}

    @property
    def left_out(self) -> list[str]:
        """Parts that the model lacks, a line each."""
        return [
            f"`{self.prompt.name}`: tokens of the prompt, by Unicode rules that ONNX has no operators for",
            f"`{self.output}`: drawing of the next token, and the text of the tokens",
        ]

    @property
    def step_net(self) -> StepNet | None:
        """The single-step net that the script runs in place of the net; None if it runs the net on windows."""
        return self.unlimited_step_net

    def meaning(self, name: str) -> str:
        """Return what the values of an input are."""
        return f"tokens of a text, from `{VOCABULARY}`"

    def functions(self) -> Iterator[str]:
        """Yield the lines of functions that read a token, draw one, and generate a text."""
        tokens, text = self.prompt.function, self.prompt.text_function
        yield from self.prompt.lines()
        yield from ("", "", *self.prompt.decoding_lines())
        weights = "np.exp((values - values.max()) / temperature)"
        if self.is_probability and self.step_net is None:
            weights = "(values / values.max()) ** (1 / temperature)"
        yield from f"""

def draw(values, temperature, random):
    if temperature == 0:
        return int(values.argmax())
    values = values.astype(np.float64)
    weights = {weights}
    best_first = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[best_first])
    return int(best_first[np.searchsorted(sums, random.random() * sums[-1], side="right")])


def generate(prompt, tokens={TOKENS}, temperature={TEMPERATURE}, seed={SEED}):
    if tokens < 1 or temperature < 0:
        raise ValueError("tokens must be 1 or more, and the temperature 0 or more")
    start = {tokens}(prompt)
    if not start:
        raise ValueError("the prompt is empty")
    random, read = np.random.Generator(np.random.Philox(seed)), [*start]
""".splitlines()
        yield from self._read_windows() if self.step_net is None else self._read_steps(self.step_net)
        yield f"    return {text}(read)[len({text}(start)) :]"

    def _read_windows(self) -> Iterator[str]:
        """Yield the lines that write tokens, each of which costs a run on a full window."""
        length = self.prompt.length
        shortened = f"read[-{length}:]"
        if self.kept is not None and self.kept < length - 1:
            oldest = f"-{self.kept + 1} - (len(read) - {length + 1}) % {length - self.kept}"
            shortened = f"read[{oldest} :] if len(read) > {length} else read  # a full window makes room"
        yield "    for _ in range(tokens):"
        yield f"        last = {shortened}"
        yield f"        window = {self._array(self.prompt)}"
        yield "        window[:, : len(last)] = last"
        yield f'        (values,) = session.run(["{self.output}"], {{"{self.prompt.name}": window}})'
        yield "        read.append(draw(values[0, len(last) - 1], temperature, random))"

    def _read_steps(self, net: StepNet) -> Iterator[str]:
        """Yield the lines that read and write tokens, each of which costs a step that passes states on."""
        name, states = self.prompt.name, net.replaced_states
        shapes = net.compiler.graph(ProgramKind.PREDICT, self.batch).inputs()
        zeros = (f'"{state}": np.zeros({shapes[state].shape}, "{shapes[state].dtype}")' for state in states)
        yield f"    states = {{{', '.join(zeros)}}}"
        yield "    for number in range(len(start) + tokens - 1):"
        yield f'        inputs = {{"{name}": np.full(({self.batch}, 1), read[number], "{self.types[name]}"), **states}}'
        yield f"        values, *after = session.run({[net.output, *states.values()]}, inputs)"
        yield "        states = dict(zip(states, after))"
        yield "        if number >= len(start) - 1:"
        yield "            read.append(draw(values[0, 0], temperature, random))"

    def main(self) -> Iterator[str]:
        """Yield the lines that read the arguments of the script, and print the prompt and the text after it."""
        options = [
            f'"--tokens", type=int, metavar="N", default={TOKENS}, help="generate N tokens [%(default)s]"',
            f'"--temperature", type=float, metavar="T", default={TEMPERATURE}, help="divide logits by T [%(default)s]"',
            f'"--seed", type=int, metavar="N", default={SEED}, help="draw with this seed [%(default)s]"',
        ]
        return self._main("continue this text", options, 'arguments["prompt"] + text')


@dataclass(frozen=True)
class ScriptEncoderDecoder(ScriptGeneration):
    """An encoder-decoder net, which writes the text that belongs to the prompt."""

    target: TextInput
    """The input of the decoder."""

    @property
    def texts(self) -> Sequence[TextInput]:
        """The inputs that take tokens."""
        return [self.prompt, self.target]

    @property
    def left_out(self) -> list[str]:
        """Parts that the model lacks, a line each."""
        return [
            f"`{self.prompt.name}`: tokens of the source text, by Unicode rules that ONNX has no operators for",
            f"`{self.target.name}`: the start token, and the tokens that have been written; each token needs a run",
            f"`{self.output}`: choice of the most probable token up to the end token, and the text of the tokens",
        ]

    def meaning(self, name: str) -> str:
        """Return what the values of an input are."""
        if name == self.prompt.name:
            return f"tokens of the source text, from `{VOCABULARY}`"
        return f"tokens of the text so far, from `{VOCABULARY}`: the start token first"

    def functions(self) -> Iterator[str]:
        """Yield the lines of functions that convert texts, and generate one."""
        source, target = self.prompt, self.target
        tokenizer, reserved = saved_tokenizer(target.tokenizer), saved_tokenizer(source.tokenizer).reserved
        impossible = [index for index in (tokenizer.padding, tokenizer.start) if index is not None]
        names = [*["padding"] * (tokenizer.padding is not None), "a start token"]
        yield from source.lines()
        yield from ("", "", *target.decoding_lines())
        yield from f'''

def generate(prompt):
    tokens = {source.function}(prompt.strip())
    if not tokens:
        raise ValueError("the prompt is empty")
    if len(tokens) > {source.length}:
        raise ValueError(f"the prompt is too long: {{len(tokens):,}} tokens, at most {source.length:,}")
    if {{*tokens}} <= {set(reserved)}:
        raise ValueError("the vocabulary has no token of the prompt")
    source = {self._array(source)}
    source[:, : len(tokens)] = tokens
    written = []
    while len(written) < {target.length}:
        target = {self._array(target)}
        target[:, : len(written) + 1] = [{tokenizer.start}, *written]  # after the start token
        inputs = {{"{source.name}": source, "{target.name}": target}}
        (values,) = session.run(["{self.output}"], inputs)
        scores = values[0, len(written), :{tokenizer.size}]
        scores[{impossible}] = -np.inf  # no text has {" or ".join(names)}
        token = int(scores.argmax())
        if token == {tokenizer.end}:  # the end
            break
        written.append(token)
    return {target.text_function}(written)
'''.splitlines()

    def main(self) -> Iterator[str]:
        """Yield the lines that read the arguments of the script, and print the text."""
        return self._main("rewrite this text", [], "text")


def script_generation(
    model: Model, spec: NetSpec | TrainSpec, output: str, dims: Mapping[str, Sequence[object]],
    types: Mapping[str, str], samples: Mapping[str, Samples], *, is_probability: bool,
) -> ScriptGeneration | None:  # fmt: skip
    """Return how the script generates text with a net; None if the net or its weights cannot, as in `generate`.

    `output` is the first output of the model, `dims` and `types` are the sizes and element types of its inputs, and
    `samples` tokens of the data, to take an example from.
    """
    if not isinstance(spec, TrainSpec) or model.preprocessing.learned is None:
        return None
    learned = model.preprocessing.learned.source
    batch = next(iter(dims.values()))[0]
    common = {"output": output, "batch": batch if isinstance(batch, int) else 1, "types": types}
    try:
        if decoder_columns(spec):
            generator = EncoderDecoderGenerator(model, spec)
            length = decoder_columns(spec)[generator.target_column].length
            return _encoder_decoder(generator, length, learned, samples, common)
        if TOKENIZER in learned and isinstance(spec.data.deployed, Text) and not spec.data.deployed.transforms:
            common |= {"is_probability": is_probability}
            return _language_model(LanguageModelGenerator(model), learned, samples, common)
    except InputError:  # the script reads arrays
        return None
    return None


def _language_model(
    generator: LanguageModelGenerator, learned: Mapping[str, Any], samples: Mapping[str, Samples],
    common: Mapping[str, Any],
) -> ScriptLanguageModel:  # fmt: skip
    tokenizer = saved_tokenizer(learned[TOKENIZER])
    prompt = TextInput(generator.input, "", learned[TOKENIZER], generator.steps, 0, is_prompt=True)
    example, most = None, min(EXAMPLE_TOKENS, generator.steps // 2)
    for row in samples.get(generator.input, ()):
        lines = tokenizer.decode(row).split("\n")[1:-1]  # whole ones
        text = next(filter(None, map(str.strip, lines)), tokenizer.decode(row[:5]).strip())
        tokens = _tokens_of_example(tokenizer, text)
        if 0 < len(tokens) <= generator.steps - most:
            drawn = islice(generator.tokens(tokens, Sampling(EXAMPLE_TEMPERATURE), SEED), most)
            example = text, text + "".join(decoded_pieces(tokenizer, drawn, tokens))
            break
    return ScriptLanguageModel(
        prompt=prompt, example=example, kept=generator.kept_tokens, unlimited_step_net=generator.unlimited_step_net,
        example_tokens=most, **common,
    )  # fmt: skip


def _encoder_decoder(
    generator: EncoderDecoderGenerator, length: int, learned: Mapping[str, Any], samples: Mapping[str, Samples],
    common: Mapping[str, Any],
) -> ScriptEncoderDecoder:  # fmt: skip
    padding = generator.source_tokenizer.padding or 0
    saved = {column: learned[column][TOKENIZER] for column in (generator.source_column, generator.target_column)}
    prompt = TextInput(
        generator.source, "", saved[generator.source_column], generator.source_length, padding, is_prompt=True
    )
    target = TextInput(generator.decoder_input, "", saved[generator.target_column], length, 0)
    example = None
    for row in samples.get(generator.source, ()):
        text = generator.source_tokenizer.decode(row).strip()
        tokens = _tokens_of_example(generator.source_tokenizer, text)
        if tokens and len(tokens) <= generator.source_length:
            example = text, generator.tokenizer.decode(generator.tokens(tokens, Sampling(0.0), SEED))
            break
    return ScriptEncoderDecoder(prompt=prompt, target=target, example=example, **common)


def _tokens_of_example(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text; none if a part of it is unknown."""
    try:
        return [] if UNKNOWN in text else tokenizer.encode(text).tolist()
    except UnknownText:
        return []
