"""A page of the site on which a small language model generates text and shows its fast weights.

The model is the run in `playground/oz`. It was trained by

    fastweights train char-lm --preset cpu --layer delta-net --d-model 64 --num-heads 2 --d-ff 192 --dropout 0 --steps N

`fastweights.adapters.standalone` writes it as C, and zig builds it for WebAssembly. The page is one file without links.
"""

import importlib.util
import json
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory

import fastweights
from fastweights.adapters.standalone import write as write_program

FOLDER = Path(__file__).parent / "playground"
EXTRA = "extra"
"""Folder of the site's source whose files are copied unchanged."""
PAGE = "oz.html"
BUILD = (
    *("-m", "ziglang", "c++", "-target", "wasm32-wasi", "-mexec-model=reactor", "-O3", "-msimd128", "-s"),
    *("-fno-exceptions", "-DNETWORK_WITHOUT_FILES", "-Wno-psabi", "network.cpp", "page.cpp", "-o", "oz.wasm"),
)
STATE = re.compile(r"NETWORK_STATE_layers_(\d+)_\w*W = (\d+), /\* float \[1, (\d+), (\d+), (\d+)\]")
"""A matrix of fast weights in the C header: layer, place, and numbers of heads, rows and columns."""
TEXT = """# A model writes in your browser

This page runs a small [DeltaNet](cells/delta.md) in your browser. It shows the fast weights after every character.

<iframe src="{page}" title="A fast weight network writes" style="width: 100%; height: 60rem; border: 0"></iframe>

The page is <a href="{page}">one file</a> of {size} kB. `fastweights compile` wrote the network as C with weights in
int8. `zig` built it for WebAssembly.
"""
MISSING = """# A model writes in your browser

This page is left out because `zig` is missing. Run `pip install ziglang`, and build the site again.
"""


def write(source: Path) -> None:
    """Writes the page into the source of the site, or a page about the missing compiler."""
    extra = source / EXTRA
    extra.mkdir(exist_ok=True)
    text = MISSING
    if importlib.util.find_spec("ziglang"):
        model, task = fastweights.load(FOLDER / "oz")
        page = html(model, task)
        (extra / PAGE).write_text(page, encoding="utf-8")
        text = TEXT.format(page=PAGE, size=len(page) // 1000)
    (source / "playground.md").write_text(text, encoding="utf-8")


def html(model: fastweights.LanguageModel, task: object) -> str:
    """HTML page of a character language model."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_program(model, task, folder, "int8")
        (folder / "page.cpp").write_bytes((FOLDER / "page.cpp").read_bytes())
        subprocess.run([sys.executable, *BUILD], cwd=folder, check=True)
        parts = {
            "WORKER": (FOLDER / "worker.js").read_text(encoding="utf-8"),
            "JSON_STATES": json.dumps(states((folder / "network.h").read_text(encoding="utf-8"))),
            "BASE64_PROGRAM": b64encode((folder / "oz.wasm").read_bytes()).decode(),
            "BASE64_WEIGHTS": b64encode((folder / "network.weights").read_bytes()).decode(),
        }
    page = (FOLDER / "page.html").read_text(encoding="utf-8").replace("MODEL", about(model))
    return re.sub("|".join(parts), lambda match: parts[match[0]], page)


def about(model: fastweights.LanguageModel) -> str:
    """One sentence about the model."""
    return f"A DeltaNet with {size_of(model)} parameters has read The Wonderful Wizard of Oz."


def size_of(model: fastweights.LanguageModel) -> str:
    """The number of parameters of a model."""
    return f"{sum(x.numel() for x in model.parameters()):,}"


def states(header: str) -> list[dict[str, object]]:
    """The matrices of fast weights in the state of a network."""
    names = ("place", "heads", "rows", "columns")
    return [
        {"name": f"layer {int(layer) + 1}", **dict(zip(names, map(int, numbers), strict=True))}
        for layer, *numbers in STATE.findall(header)
    ]
