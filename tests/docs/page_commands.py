"""Run the commands of a page of the guide in order, as a reader would paste them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.examples import ROOT

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.yaml)\n")
_SAVED = re.compile(r"[Ss]ave this as `([^`]+\.py)`[^`]*\Z")
_COMMAND = re.compile(r"(mkdir|cat >|cp|sed|cd|echo|curl|python|netspec) ?")
TIMEOUT = 300
PORT = 8000
"""The port at which the services on the pages listen."""


@dataclass(frozen=True)
class Command:
    """A command in a shell, with the output that the page shows."""

    text: str
    shown: str = ""

    @property
    def fails(self) -> bool:
        """Whether the page shows an error."""
        return re.search(r"^(\S+: )?error: ", self.shown, re.MULTILINE) is not None

    @property
    def certain(self) -> list[str]:
        """The parts of output lines that do not depend on the data, which is reduced in tests."""
        return [
            line.partition("; data read")[0].rstrip(")") for line in self.shown.splitlines() if line.startswith("OK: ")
        ]


def steps(page: Path) -> Iterator[Command | tuple[str, str]]:
    """Yield the commands of a page, and the files (name, content) that it tells its reader to save, in order."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        language, body = block["language"], block["body"]
        saved = _SAVED.search(text[max(0, block.start() - 200) : block.start()])
        if language == "yaml" and (named := _FILE.match(body)):
            yield named[1], body
        elif language == "python" and saved is not None:
            yield saved[1], body
        elif not language and body.startswith("$ "):
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield Command(command, output)
        elif not language and _COMMAND.match(body):
            yield Command(body)


def script(pages: Sequence[Path], folder: Path, slices: Mapping[str, str], port: int) -> str:
    """Return a script for bash that runs the commands of pages one after another in a folder.

    `slices` replaces texts of commands, so that they run on little data. The script ends at the first command whose
    status or output is not as on the page. `netspec serve` runs until the next service or the end, at `port`.
    """
    lines = [f"cd {folder}", "trap '[ -z \"$server\" ] || kill $server' EXIT"]
    saved: dict[str, str] = {}
    for page in pages:
        for step in steps(page):
            if isinstance(step, tuple):
                saved[step[0]] = step[1]
                continue
            text = step.text
            for old, new in slices.items():
                text = text.replace(old, new)
            # The files are saved before the next command: those of YAML below the first folder, the others where it is.
            lines += [_save(name, content, folder) for name, content in saved.items()]
            saved.clear()
            if text.startswith("netspec serve"):
                lines += _served(text, folder, port)
                continue
            if f"localhost:{PORT}" in text:
                text = text.replace("curl ", "curl -sS --fail-with-body ").replace(f":{PORT}", f":{port}")
            lines += _checked(text, step, folder)
    return "\n".join(lines)


def _save(name: str, content: str, folder: Path) -> str:
    target = f"{folder}/{name}" if name.endswith(".yaml") else name
    return f"mkdir -p $(dirname {target})\ncat > {target} <<'END_OF_FILE'\n{content}END_OF_FILE"


def _served(text: str, folder: Path, port: int) -> list[str]:
    """Return lines that start a service in the background, and wait until it answers."""
    output = f"{folder}/service.tmp"
    return [
        '[ -z "$server" ] || { kill $server; wait $server; }',
        f"{text.strip()} --port {port} > {output} 2>&1 & server=$!",
        f"until curl -sf localhost:{port}/v2/health/live; do",
        f"kill -0 $server || {{ cat {output}; exit 1; }}",
        "sleep 0.2",
        "done",
    ]


def _checked(text: str, step: Command, folder: Path) -> list[str]:
    comparison = "-ne" if step.fails else "-eq"
    output = f"{folder}/output.tmp"
    first = [f"cd {folder}"] if re.match(r"mkdir \S+ && cd ", text) else []  # each example starts in the same folder
    lines = [*first, "{", text.rstrip("\n"), f"}} > {output} 2>&1", "status=$?", f"cat {output}"]
    lines.append(f"[ $status {comparison} 0 ] || {{ echo 'exit status' $status; exit 1; }}")
    for line in step.certain:
        quoted = line.replace("'", "'\\''")
        lines.append(f"grep -qF -- '{quoted}' {output} || {{ echo 'not printed: {quoted}'; exit 1; }}")
    return lines


def run_pages(pages: Sequence[str], folder: Path, slices: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """Run the commands of pages of the guide in a folder; fail with the output if one is not as on the page.

    `variables` are added to the environment.
    """
    paths = [ROOT / "docs" / "guide" / page for page in pages]
    programs = Path(sys.executable).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        ["bash", "-x"], input=script(paths, folder, slices, port), cwd=folder, env=environment, timeout=TIMEOUT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
