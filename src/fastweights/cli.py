"""The command line: `fastweights COMMAND`, where a command is a file in `commands/`.

torch takes seconds to import, so nothing here needs it before a command runs.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from fastweights.commands._streams import print_nowhere, printable_streams
from fastweights.core.errors import Died, InputError, require
from fastweights.core.version import __version__
from fastweights.registry import COMMANDS
from fastweights.training.distributed.torchrun import dismiss, follow, follows

EPILOGUE = """examples:
  fastweights list layers                     what there is, with formula and source
  fastweights train oz                        a character model on a book, in minutes
  fastweights train oz --layer lstm           the same with another memory
  fastweights train --help                    recipes for your own data, and for named data sets
  fastweights train classifier DATA           classes of your own sequences
  fastweights generate RUN --prompt "Dorothy" what the model has learnt
  fastweights explain delta --source          the code that a cell compiles to
"""

EXTRA = {
    **dict.fromkeys(
        ("filelock", "jsonargparse", "lightning_fabric", "matplotlib", "rich", "safetensors", "yaml"), "train"
    ),
    "submitit": "cluster",
    **dict.fromkeys(("tokenizers", "sacrebleu"), "nlp"),
    "PIL": "vision",
}
"""Which extra brings a package that a command needs."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}. See {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for what failed, 2 for bad input, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _share_cores()
    with printable_streams():
        try:
            return follow(_carry_out) if follows() else _run(arguments)
        except Died as death:
            return _complain(str(death), status=1)
        finally:
            dismiss()


def _carry_out(order: dict[str, Any]) -> None:
    from fastweights.experiments.run_trial import carry_out_order

    carry_out_order(order)


def _run(arguments: list[str]) -> int:
    """A command, and one line for whatever it complains of."""
    try:
        _require_utf8(arguments)
        options = _parser(arguments[:1]).parse_args(arguments)
        status: int = options.run(options)
        print(end="", flush=True)
        return status
    except InputError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`): nothing is wrong, and nothing more can be printed.
        print_nowhere()
        return 0
    except OSError as error:
        if error.filename is None:
            print_nowhere()
        return _complain(f"{error.strerror or error}: {error.filename or 'the output'}")
    except ModuleNotFoundError as error:
        return _complain(_missing(error))
    except (MemoryError, RuntimeError) as error:
        return _complain(_out_of_memory(error))
    except KeyboardInterrupt:
        return 130


def _require_utf8(arguments: list[str]) -> None:
    """Neither tokenizers nor the files of weights can take other text, and Python hands it on as lone surrogates."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        value = before.startswith("--") and not argument.startswith("--")
        fits = not any("\ud800" <= character <= "\udfff" for character in argument)
        remedy = "Rename the file, or set the terminal to UTF-8."
        require(fits, before if value else "argument", "UTF-8", repr(argument), remedy)


def _missing(error: ModuleNotFoundError) -> str:
    """Which extra has a package that is not installed. Any other absence is a fault of ours."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA:
        raise error
    return f"{package} must be installed for this, got none. pip install 'fastweights[{EXTRA[package]}]'"


def _out_of_memory(error: Exception) -> str:
    """What to do where memory does not suffice. Any other error while running is a fault of ours."""
    text = str(error)
    if not (isinstance(error, MemoryError) or re.search("(allocate|enough|out of) memory", text)):
        raise error
    return f"memory must be enough for these sizes, got less: {text[:200] or 'none is left'}. Take smaller ones."


def _share_cores() -> None:
    """Lets threads of GNU OpenMP sleep sooner while they wait for another; whoever has chosen how they wait is obeyed.

    By default they spin for milliseconds. Where another program holds a core, the thread that all wait for is then left
    without any: a step takes seconds. It must be said before torch is loaded.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"


def _complain(message: str, status: int = 2) -> int:
    print(f"fastweights: {' '.join(message.split())}", file=sys.stderr)
    return status


def _parser(given: Sequence[str] = ()) -> Parser:
    """Knows all commands by name, and the arguments of those that are given: only these are imported."""
    parser = Parser(
        "fastweights",
        description="Neural networks whose weights are a memory that the network writes while it reads.",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastweights {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS.names():
        told = COMMANDS.docstring(name)
        command = commands.add_parser(name, help=told.partition("\n")[0], description=told)
        if name in given:
            module = import_module(f"fastweights.commands.{name}")
            module.add(command)
            command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
