"""`netspec generate`: text from a prompt."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from netspec.cli.app import CommandApp
from netspec.cli.options import Device, Json, Threads, TrainingModel, Weights, find_weights
from netspec.cli.output import print_json
from netspec.errors import InputError

app = CommandApp()


@app.add_command(
    "netspec generate char_lstm --prompt 'ROMEO:'",
    "netspec generate char_lstm --prompt 'ROMEO:' --tokens 500 --temperature 0.8 --top-k 40 --seed 7",
    "netspec generate char_lstm --prompt 'ROMEO:' --tokens 40 --beams 5",
    "netspec generate seq2seq --prompt '3 May 2019' --beams 2",
    "cat prompt.txt | netspec generate char_lstm --prompt - --json",
)
def generate(
    spec: TrainingModel,
    *,
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="TEXT", help="Continue or rewrite this text, or - (stdin).")
    ],
    tokens: Annotated[int | None, typer.Option(metavar="N", help="Generate up to N tokens [default: 200].")] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Divide logits by T; 0 takes the likeliest [default: 1].")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Draw from the K likeliest tokens [default: all].")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="P", help="Draw from the likeliest tokens with total probability P.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Draw with this seed [default: 1].")] = None,
    beams: Annotated[
        int | None, typer.Option(metavar="N", help="Use beam search with N beams instead of drawing tokens.")
    ] = None,
    weights: Weights = None,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Generate text with a net that predicts tokens.

    A language model continues the prompt: the prompt and the text after it are printed, token by token. An
    encoder-decoder net turns the prompt into another text, such as its translation, up to the end token; it takes the
    most probable token each time, unless --temperature, --top-k, --top-p or --seed is given. The same seed generates
    the same text. With --beams, beam search keeps the N most probable texts after each token, and the best one is
    printed at the end. --json prints an object with `prompt` and the `text` generated for it, and with `notes` if the
    vocabulary lacks characters or words of the prompt.
    """
    prompt = _read_standard_input() if prompt == "-" else prompt
    spec, weights = find_weights(spec, weights)
    from netspec.tools.inference.generate import text_stream

    stream = text_stream(
        spec, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams,
        weights=weights, device=device,
    )  # fmt: skip
    if as_json:
        notes = {} if stream.note is None else {"notes": [stream.note]}
        print_json({"prompt": prompt, "text": "".join(stream.pieces)} | notes)
        return
    if stream.note is not None:
        print(f"note: {stream.note}", file=sys.stderr, flush=True)
    if stream.continues_prompt:
        sys.stdout.write(prompt)
        sys.stdout.flush()
    for text in stream.pieces:
        sys.stdout.write(text)
        sys.stdout.flush()
    print()


def _read_standard_input() -> str:
    """Return the text of the standard input, without the line break at its end. Raises `InputError`."""
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InputError("the standard input is not UTF-8", expected="a text as the prompt") from None
    return text.removesuffix("\n").removesuffix("\r")
