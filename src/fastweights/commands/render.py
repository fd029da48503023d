"""Renders an episode of an agent as images, with the writes and reads of its memories."""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_env, add_run, path
from fastweights.commands._results import memories, rates
from fastweights.core.errors import require


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, the seed of the episode, and the files of the images."""
    add_run(command)
    add_env(command)
    command.add_argument("--seed", type=int, default=0, metavar="N", help="Random seed of the episode.")
    steps = "Maximum number of time steps."
    command.add_argument("--max-steps", type=int, default=300, metavar="N", help=steps)
    gif = "Path of the animation of all steps."
    command.add_argument("--gif", type=path, default=Path("episode.gif"), metavar="FILE", help=gif)
    sheet = "Path of the image with some steps and the analysis of the memories."
    command.add_argument("--sheet", type=path, default=Path("episode.png"), metavar="FILE", help=sheet)


def run(options: argparse.Namespace) -> int:
    """Writes the animation and the sheet."""
    from fastweights.commands._episode import render
    from fastweights.core.files import write_atomically
    from fastweights.inspect.renderings import animation, sheet

    require(options.max_steps >= 1, "max_steps", "at least 1", options.max_steps)
    require(0 <= options.seed < 1 << 31, "seed", "from 0 to 2147483647", options.seed)
    episode = render(options.folder, options.layer, options.seed, options.max_steps, options.env)
    write_atomically(options.gif, animation(episode))
    write_atomically(options.sheet, sheet(episode, f"An episode of {options.folder}"))
    summary = f"{len(episode.actions)} steps, return {float(episode.rewards.sum()):.4g}"
    analysed = f"{memories(len(episode.memories))} analysed"
    print(f"{summary}, {analysed}. The animation is {options.gif}, the image {options.sheet}.")
    if lines := rates(episode.memories):
        print(lines)
    return 0
