"""What memories did with a sequence, as one page that needs no other file."""

import base64
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from fastweights.core.errors import require
from fastweights.core.printable import printable
from fastweights.inspect.contents import Contents
from fastweights.report.document import framed, shown
from fastweights.report.palette import DARK, LIGHT, rgb

FULL = 127
"""What the largest number of an attention map is written as."""


def page(found: Sequence[Contents], tokens: Sequence[str], title: str) -> str:
    """The page: courses over the tokens, and what each read stems from, for every memory and head.

    Args:
        found: What the memories did, `look_into` of each.
        tokens: What the model read, a text a step.
        title: Which model it is.
    """
    require(bool(found), "found", "of at least one memory", "none", "Does the model run a scan?")
    for contents in found:
        T = contents.attention.shape[1]
        require(len(tokens) == T, "tokens", f"as many as {contents.name} has steps, {T}", len(tokens))
    data = {
        "tokens": [printable(token, allowed="\n\t\r") for token in tokens],
        "memories": [_memory(contents) for contents in found],
    }
    # A text must not end the script that it stands in.
    script = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    folder = files("fastweights.inspect")
    style, code, body = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js", "page.html"))
    told = body.replace("{title}", shown(title))
    data_script = f'<script type="application/json" id="data">{script}</script>'
    return framed(title, f" {_signs()}\n{style}", f"{told}{data_script}<script>{code}</script>")


def _memory(contents: Contents) -> dict[str, Any]:
    scale = contents.attention.abs().amax(dim=(1, 2))
    return {
        "name": printable(contents.name),
        "cell": printable(contents.cell),
        "signed": contents.signed,
        "courses": {printable(name): _numbers(course.T) for name, course in contents.courses.items()},
        "limits": {printable(name): limit for name, limit in contents.limits.items()},
        "scale": _numbers(scale),
        "attention": [_packed(a, s) for a, s in zip(contents.attention, scale, strict=True)],
    }


def _numbers(x: Tensor) -> Any:
    return [_numbers(row) for row in x] if x.ndim > 1 else [float(f"{value:.4g}") for value in x.tolist()]


def _packed(attention: Tensor, scale: Tensor) -> str:
    """Signed bytes, row after row."""
    steps = (attention / scale.clamp(min=1e-30) * FULL).round().to(torch.int8)
    return base64.b64encode(steps.numpy().tobytes()).decode()


def _signs() -> str:
    """The colours of what adds to a read and of what takes from it, as red, green and blue."""

    def rules(series: tuple[str, ...]) -> str:
        plus, minus = (", ".join(map(str, rgb(colour))) for colour in series[:2])
        return f":root {{ --plus: {plus}; --minus: {minus} }}"

    return f"{rules(LIGHT.series)} @media (prefers-color-scheme: dark) {{ {rules(DARK.series)} }}"
