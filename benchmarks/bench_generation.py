"""Compares language models that generate text: netspec token by token, from full windows, and PyTorch token by token.

python -m benchmarks.bench_generation [--quick] [--json]

The nets are `char_lstm` and `transformer_lm` of the zoo, with their weights. A text has 120 tokens, each the most
probable one, which fit the window of 128 tokens. `window` is netspec with a full window of
128 tokens for each new one. PyTorch's nets keep the state of the LSTM, and keys and values of attention, as netspec
does. All must generate the same text. Ratios are medians of the others divided by netspec's.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks import report
from benchmarks.alternate import BenchmarkError, Workers, alternate
from benchmarks.results import Results

NETS = ("char_lstm", "transformer_lm")
TOKENS = 120


def main() -> int:
    """Measure both nets."""
    options = report.parsed(report.parser(__doc__ or ""))
    report.require("torch")
    results = Results("generation", options, "torch", "numpy", "numba", "onednn-cpu-gomp")
    for net in NETS:
        try:
            results.add(measure(net, options))
        except BenchmarkError as error:
            results.fail(error, net=net)
    return results.end()


def measure(net: str, options: argparse.Namespace) -> dict[str, Any]:
    """Compare the texts of one net, then time them. Raises `BenchmarkError` if they differ."""
    with Workers() as workers:
        for subject in ("netspec", "window", "eager"):
            workers.start(options.threads, subject=subject, kind="generation", net=net, tokens=TOKENS)
        texts = {name: worker.ask("text")["tokens"] for name, worker in workers.by_name.items()}
        different = [name for name, text in texts.items() if text != texts["netspec"]]
        if different:
            raise BenchmarkError(f"{net}: {', '.join(different)} generated another text than netspec")
        report.say(f"{net}: all generate the same text; now timing")
        times = alternate(workers, rounds=3 if options.quick else 7, seconds=0.2 if options.quick else 0.7, least=3)
        if workers.failed:
            raise BenchmarkError("; ".join(workers.failed.values()))
    medians = {name: time.median for name, time in times.items()}
    return {
        "net": net,
        "tokens": TOKENS,
        "seconds": medians,
        "fastest_seconds": {name: time.fastest for name, time in times.items()},
        "ratios": {name: seconds / medians["netspec"] for name, seconds in medians.items() if name != "netspec"},
    }


if __name__ == "__main__":
    sys.exit(report.run(main))
