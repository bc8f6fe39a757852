"""Results as tables in Markdown.

    python -m benchmarks.render build/bench/*.json [--into docs/performance.md]

`--into` puts each table between the lines `<!-- benchmark NAME -->` and `<!-- end -->` of a file, NAME being the name
of the JSON file without `.json`; so no table is typed by hand.
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
"""A cell of what was not measured."""
TORCH = ("eager", "channels_last", "compile", "compile_channels_last")
"""The ways to use PyTorch; ratios are to the best of them."""


def text(data: dict[str, Any]) -> str:
    """One benchmark's results: command, machine, table, means, and what failed."""
    tables: dict[str, Callable[[dict[str, Any]], str]] = {
        "training": _training, "inference": _inference, "mnist": _mnist, "startup": _startup,
        "kernels": _kernels, "loader": _loader, "memory": _memory,
        "by_host": _by_host, "scaling": _scaling, "sources": _sources, "strategies": _strategies, "workers": _workers,
    }  # fmt: skip
    shown = tables[data["benchmark"]](data) if data["found"] else "Nothing was measured."
    failed = [f"- failed: {_where(one)}: {one['why']}" for one in data["failed"]]
    return "\n\n".join([_heading(data), shown, *(["\n".join(failed)] if failed else [])])


def _heading(data: dict[str, Any]) -> str:
    machine = data["machine"]
    loads = [
        f"{machine[key][0]} {when}" for key, when in (("load", "before"), ("load_after", "after")) if key in machine
    ]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    waiting = ", waiting passively" if data["passive"] else ""
    return (
        f"`{data['command']}`,\n{machine['when'][:10]}, {machine['processor']}, {data['threads']} threads on "
        f"{machine['cores']} cores{waiting}; load average {', '.join(loads)}; {versions}:"
    )


def _where(failure: dict[str, Any]) -> str:
    return " ".join(str(value) for key, value in failure.items() if key != "why")


def _training(data: dict[str, Any]) -> str:
    found = data["found"]
    peers = _peers(found)
    columns = ["net (batch)", "netspec ms", *(f"{peer} ms" for peer in peers), "ratio", "by fastest"]
    columns += ["netspec MB", "peer MB", "memory ratio", "compile s", "GFLOP/s", "of peak"]
    rows = [
        [
            f"{one['net']} ({one['batch_size']})",
            milliseconds(one["seconds"]["netspec"]),
            *(milliseconds(one["seconds"].get(peer)) for peer in peers),
            _times(one["ratio"]),
            _times(one["ratio_of_fastest"]),
            megabytes(one["memory"]["netspec"]),
            megabytes(one["memory"].get(one["leanest"])),
            _times(one["memory_ratio"]),
            f"{one['compile_seconds']['netspec']:.2f}",
            f"{one['flops'] / one['seconds']['netspec'] / 1e9:.0f}",
            f"{one['share_of_peak']:.0%}",
        ]
        for one in found
    ]
    means = (
        f"Geometric means against the best of PyTorch: {_mean(found, 'ratio')}; of the fastest steps "
        f"{_mean(found, 'ratio_of_fastest')}; of memory {_mean(found, 'memory_ratio', worst=max)}."
    )
    lines = [means]
    for peer in (peer for peer in peers if peer not in TORCH):
        ratios = [one["seconds"][peer] / one["seconds"]["netspec"] for one in found if peer in one["seconds"]]
        lines.append(
            f"Against {peer}: {geometric_mean(ratios):.2f} over {len(ratios)} {'net' if len(ratios) == 1 else 'nets'}."
        )
    return f"{table(columns, rows)}\n\n" + "\n".join(lines)


def _peers(found: Sequence[dict[str, Any]]) -> list[str]:
    """All that were measured beside netspec, in the order in which they first occur."""
    return [name for name in dict.fromkeys(name for one in found for name in one["seconds"]) if name != "netspec"]


def _inference(data: dict[str, Any]) -> str:
    found = data["found"]
    columns = ["net (batch)", "netspec ms", "onnxruntime ms", "ratio", "by fastest", "netspec MB", "onnxruntime MB"]
    rows = [
        [
            f"{one['net']} ({one['batch_size']})",
            *(milliseconds(one["seconds"][name]) for name in ("netspec", "onnxruntime")),
            _times(one["ratio"]),
            _times(one["ratio_of_fastest"]),
            *(megabytes(one["memory"][name]) for name in ("netspec", "onnxruntime")),
        ]
        for one in found
    ]
    sizes = sorted({one["batch_size"] for one in found})
    means = [f"batch {size} {_mean([one for one in found if one['batch_size'] == size], 'ratio')}" for size in sizes]
    return f"{table(columns, rows)}\n\nGeometric means: {'; '.join(means)}; all {_mean(found, 'ratio')}."


def _mnist(data: dict[str, Any]) -> str:
    rows = [
        [one["subject"], f"{one['median']:.1f}", f"{min(one['seconds']):.1f}", f"{min(one['accuracies']):.4f}"]
        for one in data["found"]
    ]
    medians = {one["subject"]: one["median"] for one in data["found"]}
    shown = table(["MNIST", "s, median", "s, fastest", "accuracy, least"], rows)
    peers = [one for name, one in medians.items() if name != "netspec"]
    if "netspec" not in medians or not peers:
        return shown
    return f"{shown}\n\nnetspec takes {medians['netspec'] / min(peers):.2f} of the time of the best."


def _startup(data: dict[str, Any]) -> str:
    rows = [[one["command"], f"{one['seconds']:.3f}", str(one["limit"] or "")] for one in data["found"]]
    return table(["command", "s", "allowed"], rows)


def _loader(data: dict[str, Any]) -> str:
    columns = ["samples (workers)", "netspec /s", "torch /s", "ratio", "processor ms", "torch ms", "ratio"]
    rows = []
    ratios = []
    for one in data["found"]:
        speed, work = one["per_second"], one["processor"]
        faster, less = speed["netspec"] / speed["torch"], work["torch"] / work["netspec"]
        ratios.append(less)
        speeds = [f"{speed[name]:.0f}" for name in ("netspec", "torch")]
        rows.append(
            [
                f"{one['case']} ({one['workers']})", *speeds, f"{faster:.2f}",
                *(milliseconds(work[name]) for name in ("netspec", "torch")), f"{less:.2f}",
            ]
        )  # fmt: skip
    return f"{table(columns, rows)}\n\nGeometric mean of the ratios of processor time: {geometric_mean(ratios):.2f}."


def _sources(data: dict[str, Any]) -> str:
    names = ("open", "epoch", "library")
    rows = [
        [one["case"], *(f"{one[name] / 1000:,.0f}" if name in one else NOTHING for name in names)]
        for one in data["found"]
    ]
    return table(["source", "opened k/s", "an epoch k/s", "library alone k/s"], rows)


def _memory(data: dict[str, Any]) -> str:
    columns = ["windows", "samples", "data MB", "a window MB", "taken MB"]
    rows = [
        [
            str(one["windows"]),
            f"{one['samples']:,}",
            *(megabytes(one[key]) for key in ("data_bytes", "window_bytes", "bytes")),
        ]
        for one in data["found"]
    ]
    return table(columns, rows)


def _workers(data: dict[str, Any]) -> str:
    rows = [
        [
            one["subject"], str(one["ranks"]), milliseconds(one["seconds"]), milliseconds(one["fastest"]),
            _times(one["speedup"]), f"{one['exposed']:.1%}" if one["ranks"] > 1 and "exposed" in one else "",
            f"{one['solver_bytes']:,}" if one.get("solver_bytes") else "",
        ]
        for one in data["found"]
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
            f"all-reduce of {one['bytes']:,} bytes" if one["what"] == "all_reduce" else f"step of {one['net']}",
            str(one["ranks"]),
            milliseconds(one["measured"]),
            milliseconds(one["predicted"]),
            _times(one["measured"] / one["predicted"]),
            milliseconds(one.get("from_one_rank")),
        ]
        for one in data["found"]
    ]
    return table(["what", "ranks", "measured ms", "predicted ms", "ratio", "from one rank's step ms"], rows)


def _by_host(data: dict[str, Any]) -> str:
    rows = [
        [
            one["workers"],
            f"{one['bytes']:,}",
            *(f"{1000 * one['seconds'][way]:.1f}" for way in ("at_once", "by_host")),
            _times(one["seconds"]["at_once"] / one["seconds"]["by_host"]),
            *(f"{one['left'][way]:,.0f}" for way in ("at_once", "by_host")),
        ]
        for one in data["found"]
    ]
    return table(["workers", "bytes", "at once ms", "by host ms", "ratio", "leave a host at once", "by host"], rows)


def _strategies(data: dict[str, Any]) -> str:
    rows = [
        [
            one["strategy"],
            f"{100 * one['accuracy']:.2f} %",
            f"{one['seconds']:.0f}",
            f"{one['expected']:,}",
            f"{one['measured']:,}",
            _times(one["measured"] / one["expected"]) if one["expected"] else "",
        ]
        for one in data["found"]
    ]
    return table(["strategy", "accuracy", "seconds", "bytes a step", "sent", "ratio"], rows)


def _kernels(data: dict[str, Any]) -> str:
    backends = list(dict.fromkeys(name for one in data["found"] for name in one["seconds"]))
    rows = [[one["operation"], *(milliseconds(one["seconds"].get(name)) for name in backends)] for one in data["found"]]
    return table(["operation", *(f"{name} ms" for name in backends)], rows)


def geometric_mean(ratios: Iterable[float]) -> float:
    """exp of the mean logarithm."""
    logarithms = [log(ratio) for ratio in ratios]
    return exp(sum(logarithms) / len(logarithms))


def _mean(found: Sequence[dict[str, Any]], what: str, worst: Callable[[Iterable[float]], float] = min) -> str:
    ratios = [one[what] for one in found if one[what] is not None]
    if not ratios:
        return NOTHING
    return f"{geometric_mean(ratios):.2f} ({'least' if worst is min else 'most'} {worst(ratios):.2f})"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its columns aligned; the first holds names, the others numbers."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(f"| {' | '.join([row[0].ljust(widths[0]), *numbers])} |")
    return "\n".join(lines)


def milliseconds(seconds: float | None) -> str:
    """Three digits or more."""
    if seconds is None:
        return NOTHING
    ms = 1000 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def megabytes(nbytes: float | None) -> str:
    """Whole ones."""
    return NOTHING if nbytes is None else f"{nbytes / 1e6:.0f}"


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}"


def put_into(document: str, name: str, shown: str) -> str:
    """The document with what stands between the marks of `name` replaced. Raises `ValueError` where they are not."""
    begin, end = f"<!-- benchmark {name} -->", "<!-- end -->"
    marked = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if not marked.search(document):
        raise ValueError(f"there are no lines `{begin}` and `{end}`")
    return marked.sub(lambda _: f"{begin}\n{shown}\n{end}", document, count=1)


def main() -> int:
    """Print the tables, or put them into a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="what benchmarks wrote by --output")
    parser.add_argument("--into", type=Path, help="a Markdown file with marks")
    options = parser.parse_args()
    shown = {path.stem: text(json.loads(path.read_text(encoding="utf-8"))) for path in options.files}
    if options.into is None:
        print("\n\n".join(f"## {name}\n\n{one}" for name, one in shown.items()))
        return 0
    document = options.into.read_text(encoding="utf-8")
    for name, one in shown.items():
        try:
            document = put_into(document, name, one)
        except ValueError as error:
            print(f"{options.into}: {error}", file=sys.stderr)
            return 1
    options.into.write_text(document, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
