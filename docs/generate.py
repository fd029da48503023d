"""Writes the generated pages.

A page per cell in `docs/cells` and per command in `docs/commands`, the tasks in `docs/tasks/README.md`, the tables of
`docs/getting-started/choosing-a-layer.md` and `docs/how-to/reproducing.md`, the compiler passes in
`docs/contributing/compiler.md`, the pages on performance and results, the pictures, and the table of papers in the
README.

Run `python docs/generate.py`. With a folder as argument, the script writes into that folder in place of `docs`, and the
README next to it. A test compares the committed pages with the output.
"""

import sys
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import torch
from cell_page import affine, cell_page
from command_pages import command_pages
from compiler_page import compiler_page
from paper_table import readme
from performance_page import gpu_page, performance_page
from pictures import write_pictures
from results_pages import results_pages
from task_pages import task_page

from fastweights.cell import Cell
from fastweights.layers import layer_names, make_layer
from fastweights.registry import ABILITIES, EXPERIMENTS, describe

HERE = Path(__file__).parent
D_MODEL, HEADS = 128, 8
REPORTS = [HERE / "results" / "abilities" / preset / "report.md" for preset in ("cpu", "others")]
CLOSE = 5
"""Points of accuracy that count as close to the best: seeds differ by about as much."""
MOST = 12
"""Maximum number of memories that the table of the best names per column."""


def row(name: str) -> str:
    """Row of a layer in the table of layers: abilities, size of the state, and number of parameters."""
    layer: Any = make_layer(name, D_MODEL, HEADS)
    cell = getattr(layer, "cell", getattr(getattr(layer, "layer", None), "cell", None))
    docstring = cell.summary if cell else type(layer).__doc__ or ""
    can = describe(docstring).abilities
    marks = ["yes" if ability in can else "" for ability in ABILITIES]
    leaves = torch.utils._pytree.tree_leaves(layer.initial_state(1))
    state = sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
    parameters = sum(p.numel() for p in layer.parameters())
    in_chunks = parallel(cell) if cell else ""
    link = f"[{name}](../cells/{cell.name}.md)" if cell else name
    return "| " + " | ".join([link, *marks, f"{state:,}", f"{parameters:,}", in_chunks]) + " |"


def parallel(cell: Cell) -> str:
    """Entry of a cell in the table: "chunkwise", "partly" if a loop over time computes some states, or empty."""
    form = affine(cell.key)
    return "partly" if "step by step" in form else "chunkwise" if form else ""


def choosing() -> str:
    """The page with the table of layers: the text of `choosing-a-layer.txt` with the table."""
    header = ["layer", *ABILITIES, "state", "parameters", "in parallel"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *map(row, layer_names())]
    text = (HERE / "getting-started" / "choosing-a-layer.txt").read_text(encoding="utf-8")
    text = text.replace("TABLE", "\n".join(lines)).replace("D_MODEL", str(D_MODEL)).replace("HEADS", str(HEADS))
    return text.replace("MEASURED", measured())


def measured() -> str:
    """Tables of accuracies and costs from the reports of the experiment `abilities`."""
    reports = {path: _sections(path) for path in REPORTS if path.is_file()}
    label = EXPERIMENTS.load("abilities").display.label
    accuracies = {path: _first_table(sections[f"Our numbers: {label}"]) for path, sections in reports.items()}
    texts = [best([*accuracies.values()])]
    for path, sections in reports.items():
        link = f"[report](../{path.relative_to(HERE).as_posix()})"
        texts += [f"The {label}, from the {link} of preset {path.parent.name}:", accuracies[path]]
        texts += ["Their costs:", _first_table(sections["Costs"])]
    return "\n\n".join(texts)


def best(tables: list[str]) -> str:
    """Table of the memories whose mean is at most `CLOSE` points below the best, by column, the best first."""
    (_, *columns), *rows = (_cells(line) for table in tables for line in table.splitlines())
    memories = [row for row in rows if row[0] in EXPERIMENTS.load("abilities").models.values()]
    lines = [f"| column | within {CLOSE} points of the best memory |", "|---|---|"]
    for n, column in enumerate(columns, start=1):
        means = {row[0]: float(row[n].split()[0]) for row in memories if row[n]}
        names = sorted((name for name in means if means[name] >= max(means.values()) - CLOSE), key=lambda x: -means[x])
        others = f" and {len(names) - MOST} others" if len(names) > MOST else ""
        lines.append(f"| {column} | {'; '.join(names[:MOST])}{others} |")
    return "\n".join(lines)


def _cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def _sections(report: Path) -> dict[str, str]:
    """The sections of a report by title."""
    sections = report.read_text(encoding="utf-8").split("\n### ")
    return {title: body for title, _, body in (section.partition("\n") for section in sections)}


def _first_table(text: str) -> str:
    """The lines of the first table of a text."""
    lines = list(dropwhile(lambda line: not line.startswith("|"), text.splitlines()))
    return "\n".join(takewhile(lambda line: line.startswith("|"), lines))


def reproducing() -> str:
    """The page with all experiments: the text of `reproducing.txt` with the table."""
    header = ["name", "experiment", "source", "compared with"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *map(experiment_row, EXPERIMENTS.names())]
    return (HERE / "how-to/reproducing.txt").read_text(encoding="utf-8").replace("TABLE", "\n".join(lines))


def experiment_row(name: str) -> str:
    """Row of an experiment: title, source, and whether published numbers or claims are compared."""
    experiment = EXPERIMENTS.load(name)
    numbers = "numbers" if experiment.published or experiment.published_details else ""
    compared = ", ".join(filter(None, [numbers, "claims" if experiment.claims else ""]))
    return f"| `{name}` | {experiment.title} | {experiment.source} | {compared} |"


def write(folder: Path) -> None:
    """Writes all pages."""
    pages = {"cells": {name: cell_page(name) for name in Cell.names()}, "tasks": {"README": task_page()}}
    pages["commands"] = command_pages()
    for kind, texts in pages.items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / kind / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / "results").mkdir(exist_ok=True)
    for name, text in results_pages().items():
        (folder / "results" / f"{name}.md").write_text(text, encoding="utf-8")
    for purpose in ("getting-started", "how-to", "contributing"):
        (folder / purpose).mkdir(exist_ok=True)
    (folder / "getting-started/choosing-a-layer.md").write_text(choosing(), encoding="utf-8")
    (folder / "how-to/reproducing.md").write_text(reproducing(), encoding="utf-8")
    (folder / "contributing/compiler.md").write_text(compiler_page(), encoding="utf-8")
    (folder / "performance.md").write_text(performance_page(), encoding="utf-8")
    (folder / "gpu.md").write_text(gpu_page(), encoding="utf-8")
    write_pictures(folder / "pictures")
    text = readme((HERE.parent / "README.md").read_text(encoding="utf-8"))
    (folder.parent / "README.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
