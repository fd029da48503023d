"""Writes a report of all runs in a folder, compared with the numbers of the papers."""

import argparse
from pathlib import Path

from fastweights.commands._arguments import path as existing


def add(command: argparse.ArgumentParser) -> None:
    """Adds a folder."""
    command.add_argument("folder", type=existing, metavar="DIR", help="Folder of 'fastweights reproduce'.")
    command.add_argument(
        "--pack",
        action="store_true",
        help="Additional output: one file runs.jsonl of finished runs, without weights, per experiment and preset.",
    )
    command.add_argument(
        "--verdicts",
        action="store_true",
        help="Verdicts per table and figure of the papers, printed as a Markdown table, instead of the report.",
    )


def run(options: argparse.Namespace) -> int:
    """Writes the page, or prints the verdicts."""
    if options.pack:
        print_packed(options.folder)
    if options.verdicts:
        print_verdicts(options.folder)
    else:
        print_report(options.folder)
    return 0


def print_packed(path: Path) -> None:
    """Packs the finished runs of a folder, and prints the names of the files."""
    from fastweights.report.pack import pack
    from fastweights.report.runs import collect

    for file in pack(collect(path)):
        print(f"Runs are packed in {file}.")


def print_verdicts(path: Path) -> None:
    """Prints one row per table and figure of the papers."""
    from fastweights.report.document import to_markdown
    from fastweights.report.runs import collect
    from fastweights.report.verdicts import verdicts

    print(to_markdown([verdicts(collect(path).groups)], "figures"), end="")


def print_report(path: Path) -> None:
    """Writes the page of a folder, and prints its path."""
    from fastweights.report.episodes import undrawn
    from fastweights.report.page import write_report
    from fastweights.report.runs import collect

    collection = collect(path)
    for run in (run for group in collection.groups for run in undrawn(group)):
        from fastweights.commands._episode import draw_episode  # needs PyTorch, unlike a page of numbers

        draw_episode(run)
    print(f"The report is {write_report(collection)}.")
