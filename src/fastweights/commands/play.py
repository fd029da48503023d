"""Renders an episode of an agent as images, with the writes and reads of its memories."""

import argparse
from pathlib import Path

from fastweights.commands._arguments import add_env, add_run
from fastweights.commands._shown import memories, rates
from fastweights.core.errors import require


def add(command: argparse.ArgumentParser) -> None:
    """Adds a run, the seed of the episode, and the files of the images."""
    add_run(command)
    add_env(command)
    command.add_argument("--seed", type=int, default=0, help="seed of the episode; default: %(default)s")
    most = "maximum number of steps; default: %(default)s"
    command.add_argument("--most", type=int, default=300, metavar="N", help=most)
    film = "animation of all steps; default: %(default)s"
    command.add_argument("--gif", type=Path, default=Path("episode.gif"), metavar="FILE", help=film)
    sheet = "image with some steps and the analysis of the memories; default: %(default)s"
    command.add_argument("--sheet", type=Path, default=Path("episode.png"), metavar="FILE", help=sheet)


def run(options: argparse.Namespace) -> int:
    """Writes the animation and the sheet."""
    from fastweights.commands._play import play
    from fastweights.core.files import write_atomically
    from fastweights.inspect.pictures import film, sheet

    require(options.most >= 1, "most", "at least 1", options.most)
    require(0 <= options.seed < 1 << 31, "seed", "from 0 to 2147483647", options.seed)
    episode = play(options.folder, options.layer, options.seed, options.most, options.env)
    write_atomically(options.gif, film(episode))
    write_atomically(options.sheet, sheet(episode, f"An episode of {options.folder}"))
    summary = f"{len(episode.actions)} steps, a return of {float(episode.rewards.sum()):.4g}"
    looked = f"{memories(len(episode.memories))} that can be looked into"
    print(f"{summary}, {looked}. The film is {options.gif}, the sheet {options.sheet}.")
    if lines := rates(episode.memories):
        print(lines)
    return 0
