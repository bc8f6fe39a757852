"""The table of commands, and `run`, which runs one of them.

The module of a command is imported only if it is named: `netspec check` does not load what `netspec train` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, TypeAlias, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from netspec.errors import InputError, did_you_mean, listing

Command: TypeAlias = TyperCommand | TyperGroup
Function = TypeVar("Function", bound=Callable[..., Any])

SECTIONS = {
    "Train and use a net": {
        "init": "Write a net file and a training file for your data.",
        "train": "Train a net as described in a training file.",
        "test": "Evaluate weights on the test data, or on another split.",
        "search": "Tune hyperparameters: try many values, keep the best.",
        "predict": "Predict classes, values, texts, masks or boxes for files.",
        "generate": "Generate text with a net that predicts tokens.",
        "serve": "Answer requests to a trained net over HTTP.",
        "explain": "Explain what the predictions of a net depend on.",
    },
    "Convert models": {
        "export": "Export a model as ONNX, Keras, Caffe, safetensors or npz.",
        "import": "Import ONNX, Keras or Caffe models, or PyTorch weights.",
        "convert": "Convert a model to another format, and compare both.",
    },
    "Check and measure": {
        "check": "Find errors in net and training files.",
        "plan": "Show layers, shapes, parameters, FLOPs and memory.",
        "draw": "Draw the layers of a net, with each block as one box.",
        "gradcheck": "Compare the gradients of a net with finite differences.",
        "replay": "Repeat a failed training step, and find its cause.",
        "time": "Time a training step: in total, by layer, by operation.",
        "profile": "Trace training steps: operations, data, communication.",
    },
    "Compare runs": {
        "runs": "List runs: state, results, and the settings that differ.",
        "board": "Follow all runs below a folder in a browser.",
        "report": "Write one HTML page about a run.",
        "plot": "Draw losses and metrics of runs, or learning rates.",
        "diff": "Compare two nets: layers, settings, weights and results.",
    },
    "Several workers, interrupted runs": {
        "scale": "Predict the step time and speedup of many workers.",
        "verify-parallel": "Check that 1, 2, … N workers give bit-identical weights.",
        "verify-resume": "Check that a killed run resumes bit-identically.",
    },
    "Models, data, machine": {
        "zoo": "List, show, copy and verify the models that netspec ships.",
        "data": "Inspect training data; list and download datasets.",
        "schema": "Print the JSON Schema of net and training files.",
        "devices": "List devices, kernel libraries and MPI; check a device.",
    },
}
"""The commands by section, in the order of the help, each with the first line of its own help.

The line is repeated here so that `netspec --help` does not have to import every command.
"""
COMMANDS = {name: line for section in SECTIONS.values() for name, line in section.items()}

HELP = """Train neural networks declared in YAML; check, plan, test and export them.

Exit status: 0 done, 1 failed while running, 2 wrong input, 130 interrupted.
"""

EXAMPLES = (
    "netspec zoo copy lenet_mnist my_net", "netspec check my_net/train.yaml", "netspec train my_net/train.yaml",
)  # fmt: skip

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The error class of the option parser. Click's public class is not that of the click inside typer."""


class Commands(TyperGroup):
    """A group that imports a command when it is named."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, without importing anything."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Command | None:
        """Return the command with a name. Raises `InputError` if there is none."""
        if cmd_name not in COMMANDS:
            if ctx.resilient_parsing:  # while a shell completes a word
                return None
            raise InputError(
                f"there is no command `{cmd_name}`",
                expected=f"one of {listing(list(COMMANDS), len(COMMANDS))}",
                hint=did_you_mean(cmd_name, COMMANDS),
            )
        command = cast(Command, get_command(app_of(cmd_name)))
        command.name = cmd_name
        return command

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help with the default False; for a missing default, typer would import pydantic."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first line of its help, by section."""
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])


class Plain(TyperCommand):
    """A command whose help shows arguments as they are typed, without types and brackets around them."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command's name."""
        return [*(name for name, _ in self._arguments()), "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options, each with its help."""
        arguments = self._arguments()
        options = [_help_record(option, ctx) for option in self.get_params(ctx) if option.param_type_name == "option"]
        for title, rows in (("Arguments", arguments), ("Options", [row for row in options if row])):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self) -> list[tuple[str, str]]:
        """Return the name and the help of each argument; an argument with two kinds of values has a line for each."""
        arguments: list[Any] = [param for param in self.params if param.param_type_name == "argument"]
        return [
            row
            for argument in arguments
            for row in zip(argument.metavar.split(" "), argument.help.split("\n"), strict=True)
        ]


class CommandApp(typer.Typer):
    """A Typer app as all commands have it: plain help, which starts fast and reads well in a log.

    `help_text` is that of a group of commands, with `examples` at its end; a single command's is its docstring.
    """

    def __init__(self, help_text: str = "", *examples: str) -> None:
        super().__init__(
            help=help_text, epilog=_epilog(examples), add_completion=False, rich_markup_mode=None,
            pretty_exceptions_enable=False,
        )  # fmt: skip

    def add_command(self, *examples: str, name: str | None = None) -> Callable[[Function], Function]:
        """Return a decorator that adds a function as a command, with examples at the end of its help.

        In a group of commands, `name` is required.
        """
        return self.command(name, cls=Plain, epilog=_epilog(examples))


def _help_record(option: Any, ctx: Any) -> tuple[str, str] | None:
    """Return the line of an option; of a flag also its metavar, which names words that may follow it."""
    record: tuple[str, str] | None = option.get_help_record(ctx)
    if record is None or not option.is_flag or not option.metavar:
        return record
    return f"{record[0]} {option.metavar}", record[1]


def app_of(command: str) -> typer.Typer:
    """Import the app of a command from the module of the same name."""
    module = command.replace("-", "_") + "_" * iskeyword(command)
    return cast(typer.Typer, import_module(f"netspec.cli.{module}").app)


def _epilog(examples: Sequence[str]) -> str | None:
    """Return the end of a command's help, with examples that can be pasted; None without examples."""
    if not examples:
        return None
    title = "Example:" if len(examples) == 1 else "Examples:"
    return f"\b\n{title}\n" + "\n".join(f"  {line}" for line in examples)


def _version(requested: bool) -> None:
    if requested:
        from netspec import __version__

        print(f"netspec {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print a traceback if a command fails.")] = False,
) -> None:
    """Declare the options before a command; `main` itself handles --debug, wherever it stands."""


def run(words: Sequence[str]) -> int:
    """Run the command in `words`; return its exit status. Exceptions pass through."""
    app = CommandApp(HELP, *EXAMPLES)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    app.callback(cls=Commands, context_settings=settings)(_root)
    try:
        status = get_command(app).main(args=list(words), prog_name="netspec", standalone_mode=False)
    except SystemExit as end:  # typer exits if stdout is closed; other workers must still learn that this one ends
        status = end.code
    return status if isinstance(status, int) else 0
