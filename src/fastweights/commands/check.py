"""Runs the correctness checks of the library on a rule or a cell."""

import argparse

from fastweights.commands._arguments import CELL, cell_of, device_of


def add(command: argparse.ArgumentParser) -> None:
    """Adds a cell and a device."""
    command.add_argument("cell", metavar="CELL", help=CELL)
    command.add_argument("--device", default="cpu", metavar="NAME", help="Device of the checks, such as cuda.")


def run(options: argparse.Namespace) -> int:
    """Prints one line per check; returns 1 if any failed."""
    from fastweights.testing import run_checks

    failures = 0
    for name, problem in run_checks(cell_of(options.cell), device_of(options.device)):
        print(f"{'FAILED' if problem else 'ok':<7} {name}{f': {problem}' if problem else ''}", flush=True)
        failures += bool(problem)
    print(f"{failures} checks failed" if failures else "all checks passed")
    return 1 if failures else 0
