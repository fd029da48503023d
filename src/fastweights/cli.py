"""The command line: `fastweights list | explain | compile | check | train | evaluate | generate | inspect | play |
adapt | reproduce | report`.

torch takes seconds to import, so everything here that needs it is imported when it runs.
"""

import argparse
import io
import os
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from fastweights import __version__
from fastweights.catalogue import EXPERIMENTS, KINDS, RECIPES, descriptions
from fastweights.errors import Died, InputError, require, require_name
from fastweights.training.launched import dismiss, follow, follows, launched

EPILOGUE = """examples:
  fastweights list layers                     what there is, with formula and source
  fastweights train oz                        a character model on a book, in minutes
  fastweights train oz --layer lstm           the same with another memory
  fastweights train oz --text my.txt --help   all flags of the recipe
  fastweights generate RUN --prompt "Dorothy" what the model has learnt
  fastweights explain delta --source          the code that a cell compiles to
"""

CELL = "a name from 'fastweights list cells', or MODULE:NAME or PATH.py:NAME of your own"


EXTRA = {
    **dict.fromkeys(
        ("filelock", "jsonargparse", "lightning_fabric", "matplotlib", "rich", "safetensors", "yaml"), "train"
    ),
    "submitit": "cluster",
    **dict.fromkeys(("tokenizers", "sacrebleu"), "nlp"),
    "PIL": "vision",
}
"""Which extra brings a package that a command needs."""


MOST = 1 << 28
"""Numbers in an input or a state of what is explained: they lie in memory."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status: 0, 1 for what failed, 2 for bad input, 130 after Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _share_cores()
    _print_any_text()
    try:
        return follow(_carry_out) if follows() else _run(arguments)
    except Died as death:
        return _complain(str(death), status=1)
    finally:
        dismiss()


def _carry_out(order: dict[str, Any]) -> None:
    from fastweights.experiments.trial import carry_out_order

    carry_out_order(order)


def _run(arguments: list[str]) -> int:
    """A command, and one line for whatever it complains of."""
    try:
        if arguments[:1] == ["train"] and arguments[1:2] not in ([], ["--help"], ["-h"]):
            return _train(arguments[1], arguments[2:])
        options = _parser().parse_args(arguments)
        status: int = options.run(options)
        print(end="", flush=True)
        return status
    except InputError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # The reader of a pipe has gone (`| head`): nothing is wrong, and nothing more can be printed.
        _print_nowhere()
        return 0
    except OSError as error:
        if error.filename is None:
            _print_nowhere()
        return _complain(f"{error.strerror or error}: {error.filename or 'the output'}")
    except ModuleNotFoundError as error:
        return _complain(_missing(error))
    except (MemoryError, RuntimeError) as error:
        return _complain(_out_of_memory(error))
    except KeyboardInterrupt:
        return 130


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


def _print_any_text() -> None:
    """Names of files need not be UTF-8, and a terminal need not know every letter: better escaped than not said."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_nowhere() -> None:
    """Python would complain at its end of what it could not print."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, status: int = 2) -> int:
    line = " ".join(message.split())
    # What a stranger's file says must not steer the terminal.
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print(f"fastweights: {shown}", file=sys.stderr)
    return status


def _parser() -> Parser:
    parser = Parser(
        "fastweights",
        description="Neural networks whose weights are a memory that the network writes while it reads.",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fastweights {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    _add_list(commands)
    _add_explain(commands)
    _add_compile(commands)
    _add_check(commands)
    train = commands.add_parser("train", help="train a model", description="Trains a recipe: see its own --help.")
    train.add_argument("recipe", help=f"one of {', '.join(RECIPES.names())}")
    _add_evaluate(commands)
    _add_generate(commands)
    _add_inspect(commands)
    _add_play(commands)
    _add_adapt(commands)
    _add_reproduce(commands)
    _add_report(commands)
    return parser


def _folder(name: str) -> Path:
    """A path; a variable that is not set names none, not the current folder."""
    if not name:
        raise argparse.ArgumentTypeError("must be the name of a folder, got an empty one")
    return Path(name)


def _add_list(commands: Any) -> None:
    command = commands.add_parser("list", help="what there is, with formula and source")
    command.add_argument("kind", choices=list(KINDS), metavar="KIND", help=f"one of {', '.join(KINDS)}")
    command.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    rows = descriptions(options.kind)
    width = max(map(len, rows))
    for name, (formula, source, _) in rows.items():
        print(f"{name:<{width}}  {formula}{f'  [{source}]' if source else ''}")
    return 0


def _add_explain(commands: Any) -> None:
    command = commands.add_parser("explain", help="which backend runs a cell at given sizes, and why not the others")
    command.add_argument("cell", metavar="CELL", help=CELL)
    for axis, size in {"batch": 8, "time": 256, "heads": 8, "key-size": 16, "value-size": 16}.items():
        command.add_argument(f"--{axis}", type=int, default=size, help="default: %(default)s")
    dtypes = ["float32", "float64", "bfloat16", "float16"]
    command.add_argument("--dtype", choices=dtypes, default="float32", help="default: %(default)s")
    command.add_argument("--device", default="cpu", help="default: %(default)s")
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--ir", action="store_true", help="print what its kernels compute, step by step, instead")
    instead.add_argument("--source", action="store_true", help="print the code that it compiles to instead")
    instead.add_argument(
        "--target", metavar="CHIP", help="print what it compiles to on a GPU: sm_90, ...; none need be here"
    )
    command.add_argument("--size", nargs="+", default=[], metavar="AXIS=N", help="sizes of axes by letter: K=64 V=64")
    command.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    import torch

    from fastweights.dispatch import explain
    from fastweights.testing.samples import Shape, sample_inputs

    cell = _cell(options.cell)
    if options.target is not None:
        print(_on_chip(cell, options))
        return 0
    require(not options.size, "size", "left out without --target", options.size, "Use --key-size and --value-size.")
    shape = Shape(options.batch, options.time, options.heads, options.key_size, options.value_size)
    require(min(shape) >= 1, "sizes", "at least 1", min(shape))
    numbers = shape.B * shape.H * max(shape.K, shape.V) * max(shape.T, shape.K, shape.V)
    require(numbers <= MOST, "sizes", f"of at most {MOST:,} numbers together", f"{numbers:,}", "Take smaller ones.")
    try:
        device = torch.device(options.device)
        inputs = sample_inputs(cell, shape, getattr(torch, options.dtype), device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be one that is here, got {options.device!r}: {error}") from None
    if options.ir or options.source:
        print(_compiled(cell, shape, inputs[0], options.ir))
    else:
        print(explain(cell, inputs, params=_params(cell, shape)))
    return 0


def _params(cell: Any, shape: Any) -> Any:
    from fastweights.testing.samples import sample_params

    return sample_params(cell, shape)


def _compiled(cell: Any, shape: Any, like: Any, ir: bool) -> str:
    """The kernels of a cell, in the compiler's own language or in that of the target."""
    import torch

    from fastweights.compiler import lowered
    from fastweights.compiler.op import sizes_of
    from fastweights.compiler.show import show
    from fastweights.compiler.target import TARGETS, target_of
    from fastweights.compiler.unsupported import Unsupported
    from fastweights.testing.samples import sample_inputs, sample_params, sample_state

    given = [*sample_inputs(cell, shape), *sample_state(cell, shape), *(sample_params(cell, shape) or ())]
    sizes, dtype, device = sizes_of(cell, given), torch.promote_types(like.dtype, torch.float32), like.device.type
    require_name("device", device, TARGETS)
    try:
        return show(lowered(cell, sizes, dtype)) if ir else target_of(device).source(cell, sizes, dtype)
    except Unsupported as error:
        raise InputError(f"cell must be one that compiles, got {cell.name}: {error}.") from None


def _on_chip(cell: Any, options: argparse.Namespace) -> str:
    """What the kernels of a cell come to on a chip."""
    import torch

    from fastweights.compiler.target import CHIPS, report
    from fastweights.compiler.unsupported import Unbuilt, Unsupported

    require_name("target", options.target, CHIPS)
    named = {**cell.example_sizes, "K": options.key_size, "V": options.value_size}
    sizes = {axis: named[axis] for axis in cell.example_sizes} | _sizes(options.size, cell.example_sizes)
    require(min(options.batch, options.heads) >= 1, "sizes", "at least 1", min(options.batch, options.heads))
    dtype = torch.promote_types(getattr(torch, options.dtype), torch.float32)
    try:
        return report(cell, sizes, dtype, options.target, options.batch * options.heads)
    except Unsupported as error:
        raise InputError(f"cell must be one that compiles, got {cell.name}: {error}.") from None
    except Unbuilt as error:
        raise InputError(f"target must be one that can be compiled for here, got {options.target}: {error}.") from None


def _add_compile(commands: Any) -> None:
    command = commands.add_parser(
        "compile",
        help="build kernels ahead, or write a cell as C++ for programs without Python",
        description="Builds the kernels of a cell or a layer into the cache, so that no first call waits for them. With"
        " --into, writes a cell as C++ with a C interface instead: code, header and example.",
    )
    command.add_argument("cell", metavar="CELL", help=f"{CELL}; or a layer, by its name or of such a cell")
    sizes = "of every axis of the cell: K=16 V=16; or d_model and heads of the layer: D=256 H=4"
    command.add_argument("--size", nargs="+", required=True, metavar="AXIS=N", help=sizes)
    command.add_argument("--into", type=_folder, metavar="FOLDER", help="where the files of C++ go")
    dtypes = ["float32", "float64"]
    command.add_argument("--dtype", choices=dtypes, default="float32", help="default: %(default)s")
    command.set_defaults(run=_compile)


def _compile(options: argparse.Namespace) -> int:
    import torch

    dtype = getattr(torch, options.dtype)
    if options.into is not None:
        return _write_c(_cell(options.cell), options, dtype)
    from fastweights.prebuild import prebuild_cell, prebuild_layer

    if {pair.partition("=")[0] for pair in options.size} == {"D", "H"}:
        sizes = _sizes(options.size, "DH")
        built = prebuild_layer(options.cell, sizes["D"], sizes["H"], dtype)
    else:
        cell = _cell(options.cell)
        built = prebuild_cell(cell, _all_sizes(options.size, cell), dtype)
    print("\n".join(f"Built: {kernel}" for kernel in built))
    return 0


def _write_c(cell: Any, options: argparse.Namespace, dtype: Any) -> int:
    from fastweights.compiler.target import write
    from fastweights.compiler.unsupported import Unsupported

    try:
        files = write(cell, _all_sizes(options.size, cell), dtype, options.into)
    except Unsupported as error:
        raise InputError(f"cell must be one that compiles, got {cell.name}: {error}.") from None
    print(f"Written: {', '.join(map(str, files))}. The first line of the last one says how to build them.")
    return 0


def _all_sizes(given: Sequence[str], cell: Any) -> dict[str, int]:
    """`K=64` and the like, for every axis of a cell."""
    sizes, axes = _sizes(given, cell.example_sizes), cell.example_sizes
    require(set(sizes) == set(axes), "size", f"given for every axis, {' '.join(f'{a}=N' for a in axes)}", given)
    return sizes


def _sizes(given: Sequence[str], axes: Collection[str]) -> dict[str, int]:
    """`K=64` and the like."""
    pairs = [text.partition("=") for text in given]
    for axis, _, size in pairs:
        fits = axis in axes and size.isdecimal() and 0 < int(size) <= 4096
        require(fits, "size", f"AXIS=N for an axis of {', '.join(axes)}, N from 1 to 4096", f"{axis}={size}")
    return {axis: int(size) for axis, _, size in pairs}


def _add_check(commands: Any) -> None:
    command = commands.add_parser("check", help="hold a rule or a cell, yours or ours, to the library's guarantees")
    command.add_argument("cell", metavar="CELL", help=CELL)
    command.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from fastweights.testing import run_checks

    failures = 0
    for name, problem in run_checks(_cell(options.cell)):
        print(f"{'FAILED' if problem else 'ok':<7} {name}{f': {problem}' if problem else ''}", flush=True)
        failures += bool(problem)
    print(f"{failures} checks failed" if failures else "all checks passed")
    return 1 if failures else 0


def _cell(name: str) -> Any:
    from fastweights.cell import Cell

    return Cell.of(name)


def _train(recipe: str, arguments: list[str]) -> int:
    from fastweights.experiments.flags import facts, parse

    _require_recipe(recipe)
    request = parse(recipe, arguments)
    from fastweights.experiments.trial import carry_out
    from fastweights.training.progress import Interrupted
    from fastweights.training.run import Run

    require(request.run != "", "run", "the name of a folder", "an empty one")
    run = Run.unused(recipe) if request.run is None else Run(Path(request.run))
    try:
        with run.lock():
            carry_out(run, request.flags.trial(), recipe, facts(recipe, request.flags), request.resume, shown=True)
            _show(run, getattr(request.flags, "layer", None))
    except (Interrupted, KeyboardInterrupt, BrokenPipeError) as stop:
        _print_nowhere()
        print(f"{_why(stop)} {_how_to_go_on(recipe, run)}", file=sys.stderr)
        return 130
    except Died as death:
        return _complain(f"{death} {_how_to_go_on(recipe, run)}", status=1)
    return 0


def _require_recipe(name: str) -> None:
    if name in set(EXPERIMENTS.names()) - set(RECIPES.names()):
        known = ", ".join(RECIPES.names())
        raise InputError(f"recipe must be one of {known}, got '{name}'. Try fastweights reproduce {name}.")
    require_name("recipe", name, RECIPES.names())


def _why(stop: BaseException) -> str:
    return "Stopped: nobody reads the output." if isinstance(stop, BrokenPipeError) else str(stop) or "Stopped."


def _how_to_go_on(recipe: str, run: Any) -> str:
    command = f"fastweights train {recipe} --run {shlex.quote(str(run.path))} --resume"
    return f"Go on with: {command}" if run.exists() else "Nothing was done yet."


def _add_evaluate(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="held-out results of a run, beside the baselines")
    _add_run(command)
    command.set_defaults(run=_evaluate)


def _add_run(command: Any) -> None:
    command.add_argument("folder", type=_folder, metavar="RUN", help="a run folder")
    command.add_argument("--layer", help="where your own layer is, for a run that has one: its code is run")


def _evaluate(options: argparse.Namespace) -> int:
    from fastweights.training.run import Run

    _show(Run.open(options.folder), options.layer)
    return 0


def _show(run: Any, layer: Any) -> None:
    """What a run came to, and its learning curve."""
    from fastweights.experiments.opened import measure_run
    from fastweights.experiments.trial import loop_of
    from fastweights.report.learning_curve import draw_learning_curve
    from fastweights.training.progress import Plain

    console = Plain()
    trial, session, result = measure_run(run, layer)
    loop_of(trial).show(session, result, console)
    metric, evaluations = session.task.main_metric, session.place.evaluations
    picture = draw_learning_curve(run.path, run.metrics_at(evaluations), metric, result.baselines)
    console.print(f"\nThe run lies in {run.path}, its learning curve in {picture}.")


def _add_generate(commands: Any) -> None:
    command = commands.add_parser("generate", help="text from a run, streamed")
    _add_run(command)
    several = "text to continue; several of them, each with its own --prompt, are continued side by side"
    command.add_argument("--prompt", default=[], action="append", dest="prompts", help=several)
    command.add_argument("--state", type=Path, metavar="FILE", help="go on with what --save-state wrote")
    command.add_argument("--save-state", type=Path, metavar="FILE", help="what another day can go on with, to the bit")
    command.add_argument("--length", type=int, default=500, help="characters at most, default: %(default)s")
    command.add_argument("--temperature", type=float, default=0.8, help="0 for the likeliest, default: %(default)s")
    command.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest characters")
    fewest = "only the fewest likely characters that together have probability P"
    command.add_argument("--top-p", type=float, default=1.0, metavar="P", help=fewest)
    command.add_argument("--end", metavar="CHARACTER", help="where to stop, such as '.'; it is the last one")
    command.add_argument("--seed", type=int, default=None, help="for the same text every time; + 1 a prompt")
    command.set_defaults(run=_generate)


def _generate(options: argparse.Namespace) -> int:
    from fastweights.trained import load

    model, text = load(options.folder, options.layer)
    require(hasattr(model, "stream"), "run", "one of a language model", f"{options.folder}, another model's")
    require("" not in options.prompts, "prompt", "at least one character", "none")
    end = None if options.end is None else _token(text, options.end)
    how = (options.temperature, options.seed, options.top_k, options.top_p, end)
    if len(options.prompts) > 1:
        alone = "one text, which --state and --save-state need"
        require(not (options.state or options.save_state), "prompt", alone, f"{len(options.prompts)} prompts")
        return _generate_several(model, text, options, how)
    _write(model, text, options, how)
    return 0


def _write(model: Any, text: Any, options: argparse.Namespace, how: tuple[Any, ...]) -> None:
    """One text, as it comes."""
    import torch

    require(options.prompts or options.state, "prompt", "given, or --state", "neither")
    prompt = text.encode(options.prompts[0])[None] if options.prompts else None
    state = model.load(options.state) if options.state else None
    tokens = model.stream(prompt, options.length, *how, state=state)
    before = torch.cat([part for part in (state and state.last, prompt) if part is not None], dim=1)
    said = text.learnt.said((token[0] for token in tokens), before[0])
    # The first token comes before the prompt is shown: whatever is wrong is said first.
    first = "".join(islice(said, 1))
    print("".join(options.prompts), end=first, flush=True)
    for part in said:
        print(part, end="", flush=True)
    print()
    if options.save_state:
        tokens.state.save(options.save_state)


def _generate_several(model: Any, text: Any, options: argparse.Namespace, how: tuple[Any, ...]) -> int:
    """All at once, in one batch; shown one after the other, with an empty line between."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    prompts = [text.encode(prompt) for prompt in options.prompts]
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    said = model.generate(pad_sequence(prompts, batch_first=True), options.length, *how, lengths=lengths)
    rows = ["".join(text.learnt.said(row.split(1), prompt)) for row, prompt in zip(said, prompts, strict=True)]
    whole = ["".join(row.partition(options.end)[:2]) for row in rows] if options.end else rows
    print("\n\n".join(prompt + row for prompt, row in zip(options.prompts, whole, strict=True)))
    return 0


def _token(text: Any, character: str) -> int:
    tokens = text.encode(character)
    require(len(tokens) == 1, "end", f"one {text.unit}", repr(character))
    return int(tokens)


def _add_inspect(commands: Any) -> None:
    words = "what the memories of a language model write, forget and read in a text, as a page"
    command = commands.add_parser("inspect", help=words)
    _add_run(command)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="what the model reads")
    source.add_argument("--file", type=Path, help="a UTF-8 text file that it reads")
    most = "tokens, from the beginning; default: %(default)s"
    command.add_argument("--most", type=int, default=300, metavar="N", help=most)
    command.add_argument("--page", type=Path, default=Path("inspect.html"), metavar="FILE", help="default: %(default)s")
    command.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    from fastweights.files import read_file, write_atomically
    from fastweights.inspect import page, watch_text
    from fastweights.trained import load

    require(options.most >= 1, "most", "at least 1", options.most)
    model, text = load(options.folder, options.layer)
    require(hasattr(model, "stream"), "run", "one of a language model", f"{options.folder}, another model's")
    words = options.text if options.file is None else read_file(options.file, "file").decode("utf-8", "replace")
    require(bool(words), "text", "at least one character", "none")
    found, tokens = watch_text(model, text, words, options.most)
    write_atomically(options.page, page(found, tokens, f"What {options.folder} remembers").encode())
    print(f"The page is {options.page}: {_memories(len(found))}, {len(tokens)} tokens.")
    return 0


def _add_play(commands: Any) -> None:
    words = "an episode of an agent as pictures, beside what its memories write and read"
    command = commands.add_parser("play", help=words)
    _add_run(command)
    command.add_argument("--seed", type=int, default=0, help="of the episode, default: %(default)s")
    most = "steps, from the beginning; default: %(default)s"
    command.add_argument("--most", type=int, default=300, metavar="N", help=most)
    film = "all steps, one after the other; default: %(default)s"
    command.add_argument("--gif", type=Path, default=Path("episode.gif"), metavar="FILE", help=film)
    sheet = "some of them, and all that the memories did; default: %(default)s"
    command.add_argument("--sheet", type=Path, default=Path("episode.png"), metavar="FILE", help=sheet)
    command.set_defaults(run=_play)


def _play(options: argparse.Namespace) -> int:
    from fastweights.files import write_atomically
    from fastweights.inspect.pictures import film, sheet
    from fastweights.played import play

    require(options.most >= 1, "most", "at least 1", options.most)
    require(0 <= options.seed < 1 << 31, "seed", "from 0 to 2147483647", options.seed)
    episode = play(options.folder, options.layer, options.seed, options.most)
    write_atomically(options.gif, film(episode))
    write_atomically(options.sheet, sheet(episode, f"An episode of {options.folder}"))
    told = f"{len(episode.actions)} steps, a return of {float(episode.rewards.sum()):.4g}"
    looked = f"{_memories(len(episode.memories))} that can be looked into"
    print(f"{told}, {looked}. The film is {options.gif}, the sheet {options.sheet}.")
    return 0


def _memories(count: int) -> str:
    return f"{count} {'memory' if count == 1 else 'memories'}"


def _add_adapt(commands: Any) -> None:
    words = "names your pictures by a few examples of each class; nothing is trained"
    command = commands.add_parser("adapt", help=words, description=f"A run of a few-shot network {words}.")
    _add_run(command)
    within = "folders with examples, one a class, all with as many, and beside them the pictures to name"
    command.add_argument("pictures", type=_folder, metavar="FOLDER", help=within)
    command.add_argument("--page", type=Path, default=Path("adapt.html"), metavar="FILE", help="default: %(default)s")
    command.set_defaults(run=_adapt)


def _adapt(options: argparse.Namespace) -> int:
    from fastweights.experiments.adaptation import adapt
    from fastweights.files import write_atomically
    from fastweights.report.adaptation_page import adaptation_page
    from fastweights.trained import load

    model, task = load(options.folder, options.layer)
    found = adapt(model, task, options.pictures)
    for seen, certainties in zip(found.pictures, found.certainties[-1], strict=True):
        best = int(certainties.argmax())
        print(f"{seen.name}: {found.classes[best]}, {100 * float(certainties[best]):.0f} %")
    trained = f"{task.ways} classes with {task.shots} examples each and {task.labels} labels"
    write_atomically(options.page, adaptation_page(found, str(options.folder), trained).encode())
    print(f"The page is {options.page}.")
    return 0


def _add_reproduce(commands: Any) -> None:
    names = "\n".join(f"  {name:<22} {EXPERIMENTS.describe(name).formula}" for name in EXPERIMENTS.names())
    command = commands.add_parser(
        "reproduce",
        help="an experiment of a paper, beside the paper's numbers",
        description="Runs what is missing of an experiment, goes on with what was cut off, and writes a report.",
        epilog=f"experiments:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("name", metavar="NAME", help="one of the experiments below")
    command.add_argument(
        "--preset",
        default="cpu",
        help="smoke (seconds), cpu (default), paper (its own settings), or another of the experiment's",
    )
    command.add_argument("--models", nargs="+", metavar="MODEL", help="only these of its models")
    command.add_argument("--columns", nargs="+", metavar="COLUMN", help="only these of its columns")
    command.add_argument("--seeds", type=int, metavar="N", help="number of seeds; the preset's if left out")
    command.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes side by side, default: %(default)s"
    )
    devices = ["auto", "cpu", "cuda", "mps"]
    command.add_argument("--device", choices=devices, help="where a run is trained; the recipe's if left out")
    command.add_argument("--devices", type=int, metavar="N", help="processes that share a run, each with a device")
    parts = "parts that a device takes its batch in, for less memory"
    command.add_argument("--accumulate", type=int, metavar="N", help=parts)
    again = "compute activations inside blocks again, in place of keeping them"
    command.add_argument("--recompute", action="store_const", const=True, help=again)
    each = "each of several devices keeps a part of the weights and moments, in place of all"
    command.add_argument("--sharded", action="store_const", const=True, help=each)
    program = "torch.compile makes a program of every block, which can be slower on a CPU"
    command.add_argument("--compiled", action="store_const", const=True, help=program)
    clusters = ["local", "slurm"]
    command.add_argument("--cluster", choices=clusters, default="local", help="where they run, default: %(default)s")
    command.add_argument("--folder", type=_folder, default=Path("runs"), metavar="DIR", help="default: %(default)s")
    command.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    require_name("experiment", options.name, EXPERIMENTS.names())
    from fastweights.experiments.plan import make_plan
    from fastweights.experiments.work import reproduce
    from fastweights.training.progress import Interrupted, Plain
    from fastweights.training.settings._training import Where

    require(
        launched() == 1 or (options.jobs, options.cluster) == (1, "local"), "jobs", "1 under torchrun", options.jobs
    )
    devices = launched() if launched() > 1 else options.devices
    own = (options.accumulate, options.recompute, options.sharded, options.compiled)
    where = Where(options.device, devices, *own)
    chosen = (options.models, options.columns, options.seeds, where)
    plan = make_plan(options.name, options.preset, options.folder, *chosen)
    console = Plain(soft_wrap=False)
    if not console.is_terminal:
        console.width = 120
    try:
        complete = reproduce(plan, options.jobs, options.cluster, console)
    except (Interrupted, KeyboardInterrupt) as stop:
        print(f"{stop} Go on by giving the same command again.".lstrip(), file=sys.stderr)
        return 130
    except Died as death:
        return _complain(f"{death} Go on by giving the same command again.", status=1)
    _print_report(plan.path)
    return 0 if complete else 1


def _add_report(commands: Any) -> None:
    command = commands.add_parser("report", help="all runs in a folder as one page, beside the papers' numbers")
    command.add_argument("folder", type=_folder, metavar="DIR", help="a folder of 'fastweights reproduce'")
    command.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    _print_report(options.folder)
    return 0


def _print_report(folder: Path) -> None:
    from fastweights.played import draw_episodes
    from fastweights.report.page import write_report
    from fastweights.report.runs import collect

    collection = collect(folder)
    draw_episodes(collection)
    print(f"The report is {write_report(collection)}.")


if __name__ == "__main__":
    sys.exit(main())
