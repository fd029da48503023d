"""Generates text from a run of a language model, token by token."""

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

from fastweights.commands._arguments import add_run
from fastweights.core.errors import require
from fastweights.core.files import normalised


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, prompts, and options of sampling."""
    add_run(command)
    several = "text to continue; may be given several times"
    command.add_argument("--prompt", type=normalised, default=[], action="append", dest="prompts", help=several)
    command.add_argument("--state", type=Path, metavar="FILE", help="continue from a state that --save-state wrote")
    command.add_argument(
        "--save-state", type=Path, metavar="FILE", help="save the generation state, to continue it later"
    )
    command.add_argument("--length", type=int, default=500, help="maximum number of new tokens; default: %(default)s")
    command.add_argument(
        "--temperature",
        type=float,
        default=0.8,
        help="temperature of sampling, 0 for the most probable token; default: %(default)s",
    )
    command.add_argument("--top-k", type=int, metavar="K", help="sample from the K most probable tokens")
    fewest = "sample from the fewest most probable tokens with a total probability of P"
    command.add_argument("--top-p", type=float, default=1.0, metavar="P", help=fewest)
    command.add_argument("--end", type=normalised, metavar="TOKEN", help="last token, such as '.'")
    command.add_argument("--seed", type=int, default=None, help="seed of sampling, incremented for each prompt")


def run(options: argparse.Namespace) -> int:
    """Prints the continuation of the prompts."""
    from fastweights.experiments.load import load

    model, text = load(options.folder, options.layer)
    require(hasattr(model, "stream"), "run", "one of a language model", f"{options.folder} of another kind of model")
    require("" not in options.prompts, "prompt", "at least one character", "none")
    end = None if options.end is None else _token(text, options.end)
    how = (options.temperature, options.seed, options.top_k, options.top_p, end)
    if len(options.prompts) > 1:
        alone = "a single text with --state or --save-state"
        require(not (options.state or options.save_state), "prompt", alone, f"{len(options.prompts)} prompts")
        return _generate_several(model, text, options, how)
    _write(model, text, options, how)
    return 0


def _write(model: Any, text: Any, options: argparse.Namespace, how: tuple[Any, ...]) -> None:
    """Prints one text while it is generated."""
    import torch

    require(options.prompts or options.state, "prompt", "given, or --state", "neither")
    prompt = text.encode(options.prompts[0])[None] if options.prompts else None
    state = model.load(options.state) if options.state else None
    tokens = model.stream(prompt, options.length, *how, state=state)
    before = torch.cat([part for part in (state and state.last, prompt) if part is not None], dim=1)
    pieces = text.learnt.said((token[0] for token in tokens), before[0])
    # The first token is generated before the prompt is printed, so that errors come first.
    first = "".join(islice(pieces, 1))
    print("".join(options.prompts), end=first, flush=True)
    for part in pieces:
        print(part, end="", flush=True)
    print()
    if options.save_state:
        tokens.state.save(options.save_state)


def _generate_several(model: Any, text: Any, options: argparse.Namespace, how: tuple[Any, ...]) -> int:
    """Generates all texts in one batch, and prints them with an empty line between."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    prompts = [text.encode(prompt) for prompt in options.prompts]
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    tokens = model.generate(pad_sequence(prompts, batch_first=True), options.length, *how, lengths=lengths)
    end = how[-1]
    ended = [row[: row.tolist().index(end) + 1] if end in row.tolist() else row for row in tokens]
    rows = ["".join(text.learnt.said(row.split(1), prompt)) for row, prompt in zip(ended, prompts, strict=True)]
    print("\n\n".join(prompt + row for prompt, row in zip(options.prompts, rows, strict=True)))
    return 0


def _token(text: Any, character: str) -> int:
    tokens = text.encode(character)
    require(len(tokens) == 1, "end", f"one {text.unit}", repr(character))
    return int(tokens)
