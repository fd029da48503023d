"""The command line `fastweights COMMAND`, where each command is a file in `commands/`.

torch takes seconds to import, so it is only imported when a command runs.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from fastweights.commands._streams import print_nowhere, printable_streams
from fastweights.core.errors import InputError, ProcessDied, require
from fastweights.core.version import __version__
from fastweights.registry import COMMANDS
from fastweights.training.distributed.torchrun import dismiss, follow, follows

EPILOGUE = """examples:
  fastweights list layers                     all layers, with formula and source
  fastweights train char-lm                        character-level model of a book, in minutes
  fastweights train char-lm --layer lstm           the same with another layer
  fastweights train --help                    recipes for your own data and for named data sets
  fastweights train classifier DATA           classifier of your own sequences
  fastweights generate RUN --prompt "Dorothy" text of the trained model
  fastweights explain delta --source          generated code of a cell
"""

EXTRA = {
    **dict.fromkeys(
        ("filelock", "jsonargparse", "lightning_fabric", "matplotlib", "rich", "safetensors", "yaml"), "train"
    ),
    "submitit": "cluster",
    **dict.fromkeys(("tokenizers", "sacrebleu"), "nlp"),
    "PIL": "vision",
}
"""The extra that installs each package that a command needs."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}. See {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for a failure, 2 for invalid input, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _share_cores()
    with printable_streams():
        try:
            return follow(_carry_out) if follows() else _run(arguments)
        except ProcessDied as error:
            return _report_error(str(error), status=1)
        finally:
            dismiss()


def _carry_out(order: dict[str, Any]) -> None:
    from fastweights.experiments.run_trial import carry_out_order

    carry_out_order(order)


def _run(arguments: list[str]) -> int:
    """Runs a command, and prints its errors in one line."""
    try:
        _require_utf8(arguments)
        options = _parser(arguments[:1]).parse_args(arguments)
        status: int = options.run(options)
        print(end="", flush=True)
        return status
    except InputError as error:
        return _report_error(str(error))
    except BrokenPipeError:
        # The reader of a pipe has ended (`| head`): that is no error, but nothing more can be printed.
        print_nowhere()
        return 0
    except OSError as error:
        if error.filename is None:
            print_nowhere()
        return _report_error(f"{error.strerror or error}: {error.filename or 'the output'}")
    except ModuleNotFoundError as error:
        return _report_error(_missing(error))
    except (MemoryError, RuntimeError) as error:
        return _report_error(_out_of_memory(error))
    except KeyboardInterrupt:
        return 130


def _require_utf8(arguments: list[str]) -> None:
    """Raises for arguments that are not UTF-8, which Python passes on as lone surrogates."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        value = before.startswith("--") and not argument.startswith("--")
        fits = not any("\ud800" <= character <= "\udfff" for character in argument)
        remedy = "Rename the file, or set the terminal to UTF-8."
        require(fits, before if value else "argument", "UTF-8", repr(argument), remedy)


def _missing(error: ModuleNotFoundError) -> str:
    """Names the extra of a package that is not installed. Any other missing module is a bug of the library."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA:
        raise error
    return f"{package} must be installed for this, got none. pip install 'fastweights[{EXTRA[package]}]'"


def _out_of_memory(error: Exception) -> str:
    """Describes a lack of memory. Any other error at run time is a bug of the library."""
    text = str(error)
    if not (isinstance(error, MemoryError) or re.search("(allocate|enough|out of) memory", text)):
        raise error
    return f"memory must be enough for these sizes, got less: {text[:200] or 'none is left'}. Use smaller ones."


def _share_cores() -> None:
    """Lets threads of GNU OpenMP sleep sooner while they wait, unless the user has configured the waiting.

    By default they spin for milliseconds. If another program uses a core, the thread that all wait for is then starved,
    and a step takes seconds. The variable must be set before torch is loaded.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "1000"


def _report_error(message: str, status: int = 2) -> int:
    print(f"fastweights: {' '.join(message.split())}", file=sys.stderr)
    return status


def _parser(used: Sequence[str] = ()) -> Parser:
    """The parser with the names of all commands, and the arguments of those in use, which alone are imported."""
    parser = Parser(
        "fastweights",
        description="Neural networks whose weights are a memory that the network writes while it reads.",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastweights {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for name in COMMANDS.names():
        docstring = COMMANDS.docstring(name)
        command = commands.add_parser(name, help=docstring.partition("\n")[0], description=docstring)
        if name in used:
            module = import_module(f"fastweights.commands.{name}")
            module.add(command)
            command.set_defaults(run=module.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
