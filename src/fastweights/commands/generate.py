"""Generates text from a run of a language model, token by token."""

import argparse
from itertools import islice
from typing import Any

from fastweights.commands._arguments import add_run, kind_of, path, require_kind
from fastweights.core.errors import require
from fastweights.core.files import normalised


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, prompts, and options of sampling."""
    add_run(command)
    prompt = "Text to continue. Several prompts are continued in one batch."
    command.add_argument(
        "--prompt", type=normalised, default=[], action="append", dest="prompts", metavar="TEXT", help=prompt
    )
    state = command.add_argument_group("state")
    state.add_argument("--state", type=path, metavar="FILE", help="File of --save-state to continue from.")
    state.add_argument("--save-state", type=path, metavar="FILE", help="File for the generation state.")
    sampling = command.add_argument_group("sampling")
    sampling.add_argument("--max-new-tokens", type=int, default=500, metavar="N", help="Maximum number of new tokens.")
    sampling.add_argument(
        "--eos-token", type=normalised, metavar="TOKEN", help="Token that ends the text, such as '.'."
    )
    temperature = "Temperature of sampling; 0 for the most probable token."
    sampling.add_argument("--temperature", type=float, default=0.8, metavar="X", help=temperature)
    sampling.add_argument("--top-k", type=int, metavar="N", help="Number of most probable tokens to sample from.")
    top_p = "Total probability of the most probable tokens to sample from (nucleus sampling)."
    sampling.add_argument("--top-p", type=float, default=1.0, metavar="P", help=top_p)
    seed = "Random seed of sampling, incremented for each prompt."
    sampling.add_argument("--seed", type=int, metavar="N", help=seed)


def run(options: argparse.Namespace) -> int:
    """Prints the continuation of the prompts."""
    from fastweights.experiments.load import load

    model, text = load(options.folder, options.layer)
    require_kind(hasattr(model, "stream"), options.folder, kind_of(model), "a language model")
    require("" not in options.prompts, "prompt", "at least one character", "none")
    end = None if options.eos_token is None else _token(text, options.eos_token)
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
    tokens = model.stream(prompt, options.max_new_tokens, *how, state=state)
    before = torch.cat([part for part in (state and state.last, prompt) if part is not None], dim=1)
    pieces = text.trained_tokenizer.decode_stream((token[0] for token in tokens), before[0])
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
    tokens = model.generate(pad_sequence(prompts, batch_first=True), options.max_new_tokens, *how, lengths=lengths)
    end = how[-1]
    ended = [row[: row.tolist().index(end) + 1] if end in row.tolist() else row for row in tokens]
    rows = [
        "".join(text.trained_tokenizer.decode_stream(row.split(1), prompt))
        for row, prompt in zip(ended, prompts, strict=True)
    ]
    print("\n\n".join(prompt + row for prompt, row in zip(options.prompts, rows, strict=True)))
    return 0


def _token(text: Any, character: str) -> int:
    tokens = text.encode(character)
    require(len(tokens) == 1, "eos_token", f"one {text.unit}", repr(character))
    return int(tokens)
