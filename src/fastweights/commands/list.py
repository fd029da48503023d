"""Lists the parts of a kind, with formula and source."""

import argparse

from fastweights.registry import KINDS, descriptions


def add(command: argparse.ArgumentParser) -> None:
    """Adds the kind of parts."""
    command.add_argument("kind", choices=list(KINDS), metavar="KIND", help=f"one of {', '.join(KINDS)}")


def run(options: argparse.Namespace) -> int:
    """Prints one line per part."""
    rows = descriptions(options.kind)
    width = max(map(len, rows))
    for name, (summary, _, source, _) in rows.items():
        print(f"{name:<{width}}  {summary}{f'  [{source}]' if source else ''}")
    return 0
