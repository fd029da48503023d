"""A page of the site on which small language models write, and show their memories at every letter.

The models are the runs of `playground_memories.py`. `fastweights.adapters.standalone` writes each one as C with watched
cells, and zig builds it for WebAssembly.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import playground_stream
from playground_build import FOLDER, built, filled, formula, has_compiler, text_of
from playground_memories import MEMORIES, Memory
from playground_watched import VIEWS, watched_model

import fastweights
from fastweights.adapters.standalone import write as write_program
from fastweights.layers.base.cell_layer import CellLayer
from fastweights.models import LanguageModel
from fastweights.registry import describe
from fastweights.training.run_folder.run import Run

EXTRA = "extra"
"""Folder of the site's source whose files are copied unchanged."""
PAGE = "oz.html"
"""Name of the page with the language models in the site."""
LETTERS = 2000
"""Letters of the book that the networks read before the text."""
WEIGHTS = "int8"
"""Type of the matrices in the weight files."""
PLACE = re.compile(
    rf"NETWORK_STATE_layers_(\d+)_\w*?({'|'.join(VIEWS)}) = (\d+), /\* float \[1, (\d+), (\d+)(?:, (\d+))?\]"
)
"""A tensor in the C header: layer, name, first byte, and numbers of heads, rows and columns."""
TEXT = """# Models that write in your browser

Small language models read the same text on this page. Their memories differ: {titles}. You see what each model writes,
erases and reads at every letter. You can edit the text, step through it, and let a model continue it.

<iframe src="{page}" title="Language models that write" style="width: 100%; height: 90rem; border: 0"></iframe>

The page is <a href="{page}">one file</a> of {size} kB, which loads nothing else. `fastweights compile` writes the same
networks as C: see [Deploying without Python](how-to/deploy-without-python.md). `python docs/playground_memories.py`
trains the models again.

The [gallery](gallery.md) has one memory with keys and values that you choose.
"""
MISSING = """# Models that write in your browser

This page is left out because `zig` is missing. Run `pip install ziglang`, and build the site again.
"""


def write(source: Path) -> None:
    """Writes both pages into the source of the site, or a text about the missing compiler."""
    extra = source / EXTRA
    extra.mkdir(exist_ok=True)
    text = MISSING
    if has_compiler():
        (extra / playground_stream.PAGE).write_text(playground_stream.html(), encoding="utf-8")
        (extra / PAGE).write_text(html(), encoding="utf-8")
        titles, size = ", ".join(memory.title for memory in MEMORIES), (extra / PAGE).stat().st_size
        text = TEXT.format(page=PAGE, titles=titles, size=f"{size // 1000:,}")
    (source / "playground.md").write_text(text, encoding="utf-8")


def html() -> str:
    """The page with the language models."""
    networks = [network(memory) for memory in MEMORIES]
    worker = (FOLDER / "worker.js").read_text(encoding="utf-8")
    parts = {"networks": json.dumps(networks), "passage": json.dumps(passage()), "letters": f"{LETTERS:,}"}
    return filled("oz.html", {"worker": worker, **parts})


def passage() -> str:
    """A passage of the book that no model was trained on."""
    _, task = fastweights.load(MEMORIES[0].run)
    return str(task.decode(task.validation[:LETTERS]))


def network(memory: Memory) -> dict[str, Any]:
    """The program, the weights and the description of the model of a memory."""
    model, task = fastweights.load(memory.run)
    assert isinstance(model, LanguageModel)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_program(watched_model(model, memory), task, folder, WEIGHTS)
        (folder / "page.cpp").write_bytes((FOLDER / "page.cpp").read_bytes())
        return {
            **description(memory, model),
            "places": places((folder / "network.h").read_text(encoding="utf-8")),
            "program": text_of(built(folder, ["network.cpp", "page.cpp"])),
            "weights": text_of((folder / "network.weights").read_bytes()),
        }


def description(memory: Memory, model: LanguageModel) -> dict[str, Any]:
    """The texts and numbers of a model on the page."""
    result = Run.open(memory.run).result()
    assert result is not None, memory.run
    cell = next(layer.cell for layer in model.modules() if isinstance(layer, CellLayer))
    return {
        "title": memory.title,
        "note": memory.note,
        "formula": formula(describe(cell.summary).formula),
        "bits": result.test["bits"],
        "parameters": result.parameters,
        "steps": result.steps,
    }


def places(header: str) -> list[dict[str, Any]]:
    """The tensors of the state that the page shows, by layer and name."""
    layers: dict[int, dict[str, Any]] = {}
    for layer, name, place, heads, rows, columns in PLACE.findall(header):
        shape = {"heads": int(heads), "rows": int(rows), "columns": int(columns or 1)}
        layers.setdefault(int(layer), {})[name] = {"place": int(place), **shape}
    return [layers[n] for n in sorted(layers)]
