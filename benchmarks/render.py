"""Formats results as tables in Markdown.

python -m benchmarks.render build/bench/*.json [--into docs/performance.md]

`--into` puts each table between the lines `<!-- benchmark NAME -->` and `<!-- end -->` of a file, where NAME is the
name of the JSON file without `.json`; so no table is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

NOTHING = "–"
"""Cell of a value that was not measured."""
TORCH = ("eager", "channels_last", "compile", "compile_channels_last")
"""The variants of PyTorch; ratios are relative to the best of them."""


def text(data: dict[str, Any]) -> str:
    """Return one benchmark's results as text: command, machine, table, means, and failures."""
    tables: dict[str, Callable[[dict[str, Any]], str]] = {
        "training": _training, "inference": _inference, "mnist": _mnist, "startup": _startup,
        "overhead": _overhead, "kernels": _kernels, "loader": _loader, "memory": _memory,
        "by_host": _by_host, "scaling": _scaling, "serving": _serving, "sources": _sources,
        "strategies": _strategies, "workers": _workers, "init": _init, "search": _search,
        "convnets": _convnets, "generation": _generation,
    }  # fmt: skip
    table_text = tables[data["benchmark"]](data) if data["found"] else "Nothing was measured."
    failed = [f"- failed: {_where(failure)}: {failure['why']}" for failure in data["failed"]]
    return "\n\n".join([_heading(data), table_text, *(["\n".join(failed)] if failed else [])])


def _heading(data: dict[str, Any]) -> str:
    machine = data["machine"]
    loads = [
        f"{machine[key][0]} {when}" for key, when in (("load", "before"), ("load_after", "after")) if key in machine
    ]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    conditions = "; ".join(filter(None, [f"load average {', '.join(loads)}", versions]))
    waiting = ", waiting passively" if data["passive"] else ""
    return (
        f"`{data['command']}`,\n{machine['when'][:10]}, {machine['processor']}, {data['threads']} threads on "
        f"{machine['cores']} cores{waiting}; {conditions}:"
    )


def _where(failure: dict[str, Any]) -> str:
    return " ".join(str(value) for key, value in failure.items() if key != "why")


def _training(data: dict[str, Any]) -> str:
    results = data["found"]
    peers = _peers(results)
    columns = ["net (batch)", "netspec ms", *(f"{peer} ms" for peer in peers), "ratio", "by fastest"]
    columns += ["netspec MB", "peer MB", "memory ratio", "compile s", "GFLOP/s", "of peak"]
    rows = [
        [
            f"{result['net']} ({result['batch_size']})",
            milliseconds(result["seconds"]["netspec"]),
            *(milliseconds(result["seconds"].get(peer)) for peer in peers),
            _times(result["ratio"]),
            _times(result["ratio_of_fastest"]),
            megabytes(result["memory"]["netspec"]),
            megabytes(result["memory"].get(result["leanest"])),
            _times(result["memory_ratio"]),
            f"{result['compile_seconds']['netspec']:.2f}",
            f"{result['flops'] / result['seconds']['netspec'] / 1e9:.0f}",
            f"{result['share_of_peak']:.0%}",
        ]
        for result in results
    ]
    means = (
        f"Geometric means against the best of PyTorch: {_mean(results, 'ratio')}; of the fastest steps "
        f"{_mean(results, 'ratio_of_fastest')}; of memory {_mean(results, 'memory_ratio', worst=max)}."
    )
    lines = [means]
    for peer in (peer for peer in peers if peer not in TORCH):
        ratios = [
            result["seconds"][peer] / result["seconds"]["netspec"] for result in results if peer in result["seconds"]
        ]
        lines.append(
            f"Against {peer}: {geometric_mean(ratios):.2f} over {len(ratios)} {'net' if len(ratios) == 1 else 'nets'}."
        )
    return f"{table(columns, rows)}\n\n" + "\n".join(lines)


def _peers(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return all peers that were measured, in the order in which they first occur."""
    return [
        name for name in dict.fromkeys(name for result in results for name in result["seconds"]) if name != "netspec"
    ]


def _inference(data: dict[str, Any]) -> str:
    results = data["found"]
    columns = ["net (batch)", "netspec ms", "onnxruntime ms", "ratio", "by fastest", "netspec MB", "onnxruntime MB"]
    rows = [
        [
            f"{result['net']} ({result['batch_size']})",
            *(milliseconds(result["seconds"][name]) for name in ("netspec", "onnxruntime")),
            _times(result["ratio"]),
            _times(result["ratio_of_fastest"]),
            *(megabytes(result["memory"][name]) for name in ("netspec", "onnxruntime")),
        ]
        for result in results
    ]
    sizes = sorted({result["batch_size"] for result in results})
    means = [
        f"batch {size} {_mean([result for result in results if result['batch_size'] == size], 'ratio')}"
        for size in sizes
    ]
    return f"{table(columns, rows)}\n\nGeometric means: {'; '.join(means)}; all {_mean(results, 'ratio')}."


def _generation(data: dict[str, Any]) -> str:
    columns = [
        "net",
        "netspec ms a token",
        "window ms a token",
        "PyTorch ms a token",
        "window / netspec",
        "PyTorch / netspec",
    ]
    rows = [
        [
            result["net"],
            *(milliseconds(result["seconds"][name]) for name in ("netspec", "window", "eager")),
            *(_times(result["ratios"][name]) for name in ("window", "eager")),
        ]
        for result in data["found"]
    ]
    return table(columns, rows)


def _convnets(data: dict[str, Any]) -> str:
    rows, published = [], []
    for result in data["found"]:
        steps, size = result["step"], result["batch_size"]
        best = min((name for name in steps if name != "netspec"), key=steps.__getitem__, default="netspec")
        for name in steps:
            forward = result["forward"][name]
            rows.append(
                [
                    f"{result['net']} ({size})",
                    name,
                    *map(milliseconds, (forward, result["gradients"][name] - forward, steps[name])),
                    f"{size / steps[name]:.1f}",
                    f"{steps[best] / steps['netspec']:.2f}" if name == "netspec" else "",
                    f"{result['processor'][name]:.2f}",
                ]
            )
    for net, (size, libraries) in data["published"].items():
        for library, (forward, backward) in libraries.items():
            rate = f"{1000 * size / (forward + backward):.0f}"
            published.append([f"{net} ({size})", library, f"{forward}", f"{backward}", rate])
    columns = ["net (batch)", "library", "forward ms", "backward ms", "step ms", "images/s", "ratio", "CPU s of a step"]
    return "\n\n".join(
        [
            table(columns, rows),
            "Published by convnet-benchmarks in 2016, on a GeForce GTX Titan X, without the update:",
            table(["net (batch)", "library", "forward ms", "backward ms", "images/s"], published),
        ]
    )


def _mnist(data: dict[str, Any]) -> str:
    rows = [
        [
            result["subject"],
            f"{result['median']:.1f}",
            f"{min(result['seconds']):.1f}",
            f"{min(result['accuracies']):.4f}",
        ]
        for result in data["found"]
    ]
    medians = {result["subject"]: result["median"] for result in data["found"]}
    table_text = table(["MNIST", "s, median", "s, fastest", "accuracy, least"], rows)
    peers = [median for name, median in medians.items() if name != "netspec"]
    if "netspec" not in medians or not peers:
        return table_text
    return f"{table_text}\n\nnetspec takes {medians['netspec'] / min(peers):.2f} of the time of the best."


def _startup(data: dict[str, Any]) -> str:
    rows = [[result["command"], f"{result['seconds']:.3f}", str(result["limit"] or "")] for result in data["found"]]
    return table(["command", "s", "allowed"], rows)


def _search(data: dict[str, Any]) -> str:
    kinds, ways = {"processor": "CPU time", "wall": "wall time"}, ("one process", "batches")
    rows = [
        [
            result["search"], f"{result['processor']['processes'] / result['trials']:.2f}",
            *(_times(result[kind]["processes"] / result[kind][way]) for kind in kinds for way in ways),
        ]
        for result in data["found"]
    ]  # fmt: skip
    columns = [f"{title}: processes / {way}" for title in kinds.values() for way in ways]
    return table(["trials differ in", "processes: CPU s a trial", *columns], rows)


def _overhead(data: dict[str, Any]) -> str:
    rows = [
        [result["what"], milliseconds(result["bare"]), milliseconds(result["training"]), f"{result['ratio']:.3f}",
         f"{result['processor']:.3f}", f"{result['goal']}"]
        for result in data["found"]
    ]  # fmt: skip
    return table(["LeNet, a step", "bare ms", "training ms", "ratio", "ratio of processor time", "goal"], rows)


def _serving(data: dict[str, Any]) -> str:
    columns = ["tensors (clients)", "subject", "requests/s", "median ms", "p99 ms", "requests", "errors"]
    rows = []
    for result in data["found"]:
        for subject in ("netspec", "onnxruntime"):
            figures = result[subject]
            times = [milliseconds(figures[key]) for key in ("median", "p99")]
            counts = [str(figures[key]) for key in ("requests", "errors")]
            name = f"{result['encoding']} ({result['clients']})"
            rows.append([name, subject, f"{figures['per_second']:.0f}", *times, *counts])
    ratios = [result["netspec"]["per_second"] / result["onnxruntime"]["per_second"] for result in data["found"]]
    return f"{table(columns, rows)}\n\nRequests per second against ONNX Runtime: {', '.join(map(_times, ratios))}."


def _loader(data: dict[str, Any]) -> str:
    columns = ["samples (workers)", "netspec /s", "torch /s", "ratio", "CPU ms", "torch ms", "ratio"]
    rows = []
    ratios = []
    for result in data["found"]:
        speed, work = result["per_second"], result["processor"]
        faster, less = speed["netspec"] / speed["torch"], work["torch"] / work["netspec"]
        ratios.append(less)
        speeds = [f"{speed[name]:.0f}" for name in ("netspec", "torch")]
        rows.append(
            [
                f"{result['case']} ({result['workers']})", *speeds, f"{faster:.2f}",
                *(milliseconds(work[name]) for name in ("netspec", "torch")), f"{less:.2f}",
            ]
        )  # fmt: skip
    return f"{table(columns, rows)}\n\nGeometric mean of the ratios of CPU time: {geometric_mean(ratios):.2f}."


def _sources(data: dict[str, Any]) -> str:
    names = ("open", "epoch", "library")
    rows = [
        [result["case"], *(f"{result[name] / 1000:,.0f}" if name in result else NOTHING for name in names)]
        for result in data["found"]
    ]
    return table(["source", "opened k/s", "an epoch k/s", "library alone k/s"], rows)


def _init(data: dict[str, Any]) -> str:
    rows = []
    for result in data["found"]:
        shown = _percent if result["measure"] == "accuracy" else _significant
        peers = [f"{name} {shown(value)}" for name, value in result["values"].items() if name != "netspec"]
        seconds = [f"{taken:,.0f}" for taken in result["processor"].values()]
        goal = f"{'≥' if result['measure'] == 'accuracy' else '≤'} {shown(result['goal'])}"
        goal = goal if result["reached"] else f"**{goal}**"
        rows.append([result["case"], result["measure"], shown(result["values"]["netspec"]), ", ".join(peers), goal,
                     " / ".join(seconds)])  # fmt: skip
    return table(["dataset", "measure", "netspec", "scikit-learn", "goal", "CPU s"], rows)


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _significant(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _memory(data: dict[str, Any]) -> str:
    columns = ["windows", "samples", "data MB", "a window MB", "taken MB"]
    rows = [
        [
            str(result["windows"]),
            f"{result['samples']:,}",
            *(megabytes(result[key]) for key in ("data_bytes", "window_bytes", "bytes")),
        ]
        for result in data["found"]
    ]
    return table(columns, rows)


def _workers(data: dict[str, Any]) -> str:
    rows = [
        [
            result["subject"], str(result["ranks"]), milliseconds(result["seconds"]), milliseconds(result["fastest"]),
            _times(result["speedup"]),
            f"{result['exposed']:.1%}" if result["ranks"] > 1 and "exposed" in result else "",
            f"{result['solver_bytes']:,}" if result.get("solver_bytes") else "",
        ]
        for result in data["found"]
    ]  # fmt: skip
    columns = [
        "subject",
        "ranks",
        "step ms",
        "fastest ms",
        "speedup",
        "communication not hidden",
        "solver's bytes a rank",
    ]
    return table(columns, rows)


def _scaling(data: dict[str, Any]) -> str:
    rows = [
        [
            f"all-reduce of {result['bytes']:,} bytes"
            if result["what"] == "all_reduce"
            else f"step of {result['net']}",
            str(result["ranks"]),
            milliseconds(result["measured"]),
            milliseconds(result["predicted"]),
            _times(result["measured"] / result["predicted"]),
            milliseconds(result.get("from_one_rank")),
        ]
        for result in data["found"]
    ]
    return table(["what", "ranks", "measured ms", "predicted ms", "ratio", "from one rank's step ms"], rows)


def _by_host(data: dict[str, Any]) -> str:
    rows = [
        [
            result["workers"],
            f"{result['bytes']:,}",
            *(f"{1000 * result['seconds'][way]:.1f}" for way in ("at_once", "by_host")),
            _times(result["seconds"]["at_once"] / result["seconds"]["by_host"]),
            *(f"{result['left'][way]:,.0f}" for way in ("at_once", "by_host")),
        ]
        for result in data["found"]
    ]
    return table(["workers", "bytes", "at once ms", "by host ms", "ratio", "leave a host at once", "by host"], rows)


def _strategies(data: dict[str, Any]) -> str:
    rows = [
        [
            result["strategy"],
            f"{100 * result['accuracy']:.2f} %",
            f"{result['seconds']:.0f}",
            f"{result['expected']:,}",
            f"{result['measured']:,}",
            _times(result["measured"] / result["expected"]) if result["expected"] else "",
        ]
        for result in data["found"]
    ]
    return table(["strategy", "accuracy", "seconds", "bytes a step", "sent", "ratio"], rows)


def _kernels(data: dict[str, Any]) -> str:
    backends = list(dict.fromkeys(name for result in data["found"] for name in result["seconds"]))
    rows = [
        [result["operation"], *(milliseconds(result["seconds"].get(name)) for name in backends)]
        for result in data["found"]
    ]
    return table(["operation", *(f"{name} ms" for name in backends)], rows)


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the exponential of the mean logarithm."""
    logarithms = [log(ratio) for ratio in ratios]
    return exp(sum(logarithms) / len(logarithms))


def _mean(results: Sequence[dict[str, Any]], key: str, worst: Callable[[Iterable[float]], float] = min) -> str:
    ratios = [result[key] for result in results if result[key] is not None]
    if not ratios:
        return NOTHING
    return f"{geometric_mean(ratios):.2f} ({'least' if worst is min else 'most'} {worst(ratios):.2f})"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown with aligned columns; the first column has names, the others numbers."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(f"| {' | '.join([row[0].ljust(widths[0]), *numbers])} |")
    return "\n".join(lines)


def milliseconds(seconds: float | None) -> str:
    """Format with at least three digits."""
    if seconds is None:
        return NOTHING
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def megabytes(nbytes: float | None) -> str:
    """Format in whole megabytes."""
    return NOTHING if nbytes is None else f"{nbytes / 1e6:.0f}"


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"


def put_into(document: str, name: str, content: str) -> str:
    """Replace the text between the marks of `name` in a document. Raises `ValueError` if it has no such marks."""
    begin, end = f"<!-- benchmark {name} -->", "<!-- end -->"
    marked = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if not marked.search(document):
        raise ValueError(f"there are no lines `{begin}` and `{end}`")
    return marked.sub(lambda _: f"{begin}\n{content}\n{end}", document, count=1)


def main() -> int:
    """Print the tables, or put them into a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="read these results, which benchmarks wrote with --output")
    parser.add_argument("--into", type=Path, help="put the tables into this Markdown file")
    options = parser.parse_args()
    texts = {path.stem: text(json.loads(path.read_text(encoding="utf-8"))) for path in options.files}
    if options.into is None:
        print("\n\n".join(f"## {name}\n\n{table_text}" for name, table_text in texts.items()))
        return 0
    document = options.into.read_text(encoding="utf-8")
    for name, table_text in texts.items():
        try:
            document = put_into(document, name, table_text)
        except ValueError as error:
            print(f"{options.into}: {error}", file=sys.stderr)
            return 1
    options.into.write_text(document, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
