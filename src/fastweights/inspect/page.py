"""Self-contained HTML page of the analysis of memories."""

import base64
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.printable import printable
from fastweights.inspect.memory_trace import MemoryTrace
from fastweights.report.document import framed, shown
from fastweights.report.palette import DARK, LIGHT, rgb

FULL = 127
"""Integer that encodes the largest number of an attention map."""


def render_html(memories: Sequence[MemoryTrace], tokens: Sequence[str], title: str) -> str:
    """Renders a self-contained HTML page with the analysis of memories.

    It shows time series over the tokens, and the origins of each output, for every memory and head.

    Args:
        memories: Analysis of each memory by `analyze`.
        tokens: Input of the model, one text per time step.
        title: Title of the page, such as the name of the model.

    Returns:
        The HTML.

    Raises:
        InputError: there is no analysis, or the number of tokens differs from that of the time steps.
    """
    require(bool(memories), "memories", "at least one analysis", "none", "Does the model run a scan?")
    for contents in memories:
        T = contents.attention.shape[1]
        require(len(tokens) == T, "tokens", f"{T} tokens, one per time step of {contents.name}", len(tokens))
    data = {
        "tokens": [printable(token, allowed="\n\t\r") for token in tokens],
        "memories": [_memory(contents) for contents in memories],
    }
    # A text must not close the script element that contains it.
    script = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    folder = files("fastweights.inspect")
    style, code, body = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js", "page.html"))
    filled = body.replace("{title}", shown(title))
    data_script = f'<script type="application/json" id="data">{script}</script>'
    return framed(title, f" {_signs()}\n{style}", f"{filled}{data_script}<script>{code}</script>")


def _memory(contents: MemoryTrace) -> dict[str, Any]:
    scale = contents.attention.abs().amax(dim=(1, 2))
    return {
        "name": printable(contents.name),
        "cell": printable(contents.cell),
        "signed": contents.signed,
        "series": {printable(name): _rounded(series.T) for name, series in contents.series.items()},
        "limits": {printable(name): limit for name, limit in contents.limits.items()},
        "scale": _rounded(scale),
        "attention": [_encode(a, s) for a, s in zip(contents.attention, scale, strict=True)],
    }


def _rounded(x: Tensor) -> Any:
    return [_rounded(row) for row in x] if x.ndim > 1 else [float(f"{value:.4g}") for value in x.tolist()]


def _encode(attention: Tensor, scale: Tensor) -> str:
    """Encodes a map as base64 of signed bytes, row by row."""
    steps = (attention / scale.clamp(min=1e-30) * FULL).round().to(torch.int8)
    return base64.b64encode(steps.numpy().tobytes()).decode()


def _signs() -> str:
    """CSS variables with the colours of positive and negative contributions to a read."""

    def rules(series: tuple[str, ...]) -> str:
        plus, minus = (", ".join(map(str, rgb(colour))) for colour in series[:2])
        return f":root {{ --plus: {plus}; --minus: {minus} }}"

    return f"{rules(LIGHT.series)} @media (prefers-color-scheme: dark) {{ {rules(DARK.series)} }}"
