"""Text from a run, streamed."""

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

from fastweights.commands._arguments import add_run
from fastweights.core.errors import require
from fastweights.core.files import normalised


def add(command: argparse.ArgumentParser) -> None:
    """A run, what to continue, and how."""
    add_run(command)
    several = "text to continue; several of them, each with its own --prompt, are continued side by side"
    command.add_argument("--prompt", type=normalised, default=[], action="append", dest="prompts", help=several)
    command.add_argument("--state", type=Path, metavar="FILE", help="go on with what --save-state wrote")
    command.add_argument("--save-state", type=Path, metavar="FILE", help="what another day can go on with, to the bit")
    command.add_argument("--length", type=int, default=500, help="tokens at most, default: %(default)s")
    command.add_argument("--temperature", type=float, default=0.8, help="0 for the likeliest, default: %(default)s")
    command.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest tokens")
    fewest = "only the fewest likely tokens that together have probability P"
    command.add_argument("--top-p", type=float, default=1.0, metavar="P", help=fewest)
    command.add_argument(
        "--end", type=normalised, metavar="TOKEN", help="where to stop, such as '.'; it is the last one"
    )
    command.add_argument("--seed", type=int, default=None, help="for the same text every time; + 1 a prompt")


def run(options: argparse.Namespace) -> int:
    """Continues it."""
    from fastweights.experiments.load import load

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
    end = how[-1]
    ended = [row[: row.tolist().index(end) + 1] if end in row.tolist() else row for row in said]
    rows = ["".join(text.learnt.said(row.split(1), prompt)) for row, prompt in zip(ended, prompts, strict=True)]
    print("\n\n".join(prompt + row for prompt, row in zip(options.prompts, rows, strict=True)))
    return 0


def _token(text: Any, character: str) -> int:
    tokens = text.encode(character)
    require(len(tokens) == 1, "end", f"one {text.unit}", repr(character))
    return int(tokens)
