"""The predictions of a few-shot model for unlabelled images, as one self-contained page."""

import base64
from collections.abc import Iterator

from torch import Tensor

from fastweights.experiments.adaptation import Adaptation, NamedImage
from fastweights.report.document import framed, shown
from fastweights.report.palette import DARK, LIGHT
from fastweights.report.png import png

STYLE = """
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
       margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 2rem; } p { max-width: 48rem; }
.tiles { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); }
.answers { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; } figcaption { font-size: .85rem; }
article { border-top: 1px solid var(--line); padding-top: 1rem; }
img { width: 7rem; height: 7rem; image-rendering: pixelated; border: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: .3rem 0; } svg { width: 100%; height: 7rem; border: 1px solid var(--line); }
polyline { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; }
.sure { font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .1rem .5rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
.wide { overflow-x: auto; } .key { display: inline-block; }
.key::before { content: ""; display: inline-block; width: 1rem; height: 3px;
       margin-right: .3rem; vertical-align: middle; background: var(--colour); }
"""
DASHED = "stroke-dasharray: 5 4"
DASHED_KEY = "background: repeating-linear-gradient(90deg, var(--colour) 0 4px, transparent 4px 6px) !important"
UNIT = 100
"""Height of a plot of probabilities."""


def adaptation_page(adaptation: Adaptation, run: str, trained: str) -> str:
    """The page as HTML.

    Args:
        adaptation: The examples, the images and the predicted probabilities.
        run: Name of the run of the model.
        trained: Task that the model was trained on.
    """
    noun = "image" if len(adaptation.images) == 1 else "images"
    title = f"{len(adaptation.images)} {noun} of {len(adaptation.classes)} classes"
    shots = len(adaptation.examples) // len(adaptation.classes)
    examples = "example" if shots == 1 else "examples"
    introduction = (
        f"{shots} {examples} of each of {', '.join(adaptation.classes)}, shown once, one by one, in this order. The "
        f"model of {run} was trained for {trained}, not on these classes: nothing was trained here."
    )
    tiles, answers = "".join(_examples(adaptation)), "".join(_answers(adaptation))
    body = (
        f'<h1>{shown(title)}</h1><h2>Examples</h2><p>{shown(introduction)}</p><div class="tiles">{tiles}</div>'
        f'<h2>Answers</h2><p>{_legend(adaptation)}</p><div class="answers">{answers}</div>'
    )
    return framed(title, _colours(len(adaptation.classes)) + STYLE, body)


def _examples(adaptation: Adaptation) -> Iterator[str]:
    for number, (image, label) in enumerate(adaptation.examples, start=1):
        caption = f"{number}. {adaptation.classes[label]}"
        yield f"<figure>{_image(image, caption)}<figcaption>{shown(caption)}</figcaption></figure>"


def _legend(adaptation: Adaptation) -> str:
    keys = " ".join(f'<span class="key c{n}">{shown(name)}</span>' for n, name in enumerate(adaptation.classes))
    return f"{keys}<br>Lines: probability of each class after 0, 1, 2, ... examples, from 0 to 100 %."


def _answers(adaptation: Adaptation) -> Iterator[str]:
    for n, image in enumerate(adaptation.images):
        curve = adaptation.certainties[:, n]
        best = int(curve[-1].argmax())
        answer = f"{adaptation.classes[best]}, {_percent(curve[-1, best])}"
        title = f'<h3 class="sure">{shown(answer)}</h3><div>{shown(image.name)}</div>'
        numbers = f"<details><summary>Numbers</summary>{_table(adaptation, curve)}</details>"
        yield f"<article>{_image(image, image.name)}{title}{_lines(curve)}{numbers}</article>"


def _lines(curve: Tensor) -> str:
    """One line per class."""
    width = len(curve) - 1
    lines = "".join(
        f'<polyline class="c{n}" points="{" ".join(f"{t},{UNIT * (1 - float(p)):.1f}" for t, p in enumerate(row))}"/>'
        for n, row in enumerate(curve.T)
    )
    label = "Probability of each class after every example; the numbers follow."
    box = f'viewBox="0 -2 {width} {UNIT + 4}" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{label}">{lines}</svg>'


def _table(adaptation: Adaptation, curve: Tensor) -> str:
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in adaptation.classes)
    rows = "".join(
        f'<tr><th scope="row">{t}</th>{"".join(f"<td>{_percent(p)}</td>" for p in row)}</tr>'
        for t, row in enumerate(curve)
    )
    header = f'<thead><tr><th scope="col">examples</th>{head}</tr></thead>'
    return f'<div class="wide" role="region" tabindex="0"><table>{header}<tbody>{rows}</tbody></table></div>'


def _percent(p: Tensor) -> str:
    return f"{100 * float(p):.0f} %"


def _colours(classes: int) -> str:
    def rules(series: tuple[str, ...]) -> str:
        return " ".join(
            f".c{n} {{ --colour: {series[n % len(series)]}; stroke: var(--colour) }}" for n in range(classes)
        )

    # There are eight colours; the lines of further classes are dashed.
    dashes = " ".join(
        f".c{n} {{ {DASHED} }} .c{n}::before {{ {DASHED_KEY} }}" for n in range(len(LIGHT.series), classes)
    )
    return f"{dashes} {rules(LIGHT.series)} @media (prefers-color-scheme: dark) {{ {rules(DARK.series)} }}"


def _image(image: NamedImage, words: str) -> str:
    source = f"data:image/png;base64,{base64.b64encode(png(image.pixels)).decode()}"
    return f'<img src="{source}" alt="{shown(words)}">'
