"""Holds a rule or a cell, yours or ours, to the library's guarantees."""

import argparse

from fastweights.commands._arguments import CELL, cell_of, device_of


def add(command: argparse.ArgumentParser) -> None:
    """A cell."""
    command.add_argument("cell", metavar="CELL", help=CELL)
    command.add_argument("--device", default="cpu", help="where, as torch names it: cuda, or cpu, the default")


def run(options: argparse.Namespace) -> int:
    """A line a check; 1 if any of them failed."""
    from fastweights.testing import run_checks

    failures = 0
    for name, problem in run_checks(cell_of(options.cell), device_of(options.device)):
        print(f"{'FAILED' if problem else 'ok':<7} {name}{f': {problem}' if problem else ''}", flush=True)
        failures += bool(problem)
    print(f"{failures} checks failed" if failures else "all checks passed")
    return 1 if failures else 0
