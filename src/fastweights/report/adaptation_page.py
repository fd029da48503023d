"""What a model says of pictures that it was shown examples of, as one page that needs no other file."""

import base64
from collections.abc import Iterator

from torch import Tensor

from fastweights.experiments.adaptation import Adaptation, Picture
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
"""Height of a picture of certainties."""


def adaptation_page(found: Adaptation, run: str, trained: str) -> str:
    """The page; `run` and `trained` say which model it is, and what it was trained for."""
    pictures = "picture" if len(found.pictures) == 1 else "pictures"
    title = f"{len(found.pictures)} {pictures} of {len(found.classes)} classes"
    shots = len(found.examples) // len(found.classes)
    examples = "example" if shots == 1 else "examples"
    said = (
        f"{shots} {examples} of each of {', '.join(found.classes)}, shown once, one by one, in this order. The model "
        f"of {run} was trained for {trained}, not on these classes: nothing was trained here."
    )
    body = (
        f'<h1>{shown(title)}</h1><h2>Examples</h2><p>{shown(said)}</p><div class="tiles">{"".join(_examples(found))}'
        f'</div><h2>Answers</h2><p>{_legend(found)}</p><div class="answers">{"".join(_answers(found))}</div>'
    )
    return framed(title, _colours(len(found.classes)) + STYLE, body)


def _examples(found: Adaptation) -> Iterator[str]:
    for number, (seen, label) in enumerate(found.examples, start=1):
        caption = f"{number}. {found.classes[label]}"
        yield f"<figure>{_image(seen, caption)}<figcaption>{shown(caption)}</figcaption></figure>"


def _legend(found: Adaptation) -> str:
    keys = " ".join(f'<span class="key c{n}">{shown(name)}</span>' for n, name in enumerate(found.classes))
    return f"{keys}<br>Lines: how certain of each class after 0, 1, 2, ... examples, from 0 to 100 %."


def _answers(found: Adaptation) -> Iterator[str]:
    for n, seen in enumerate(found.pictures):
        course = found.certainties[:, n]
        best = int(course[-1].argmax())
        answer = f"{found.classes[best]}, {_percent(course[-1, best])}"
        yield (
            f'<article>{_image(seen, seen.name)}<h3 class="sure">{shown(answer)}</h3><div>{shown(seen.name)}</div>'
            f"{_lines(course)}<details><summary>Numbers</summary>{_table(found, course)}</details></article>"
        )


def _lines(course: Tensor) -> str:
    """A line a class."""
    width = len(course) - 1
    lines = "".join(
        f'<polyline class="c{n}" points="{" ".join(f"{t},{UNIT * (1 - float(p)):.1f}" for t, p in enumerate(row))}"/>'
        for n, row in enumerate(course.T)
    )
    said = "How certain of each class after every example; the numbers follow."
    box = f'viewBox="0 -2 {width} {UNIT + 4}" preserveAspectRatio="none"'
    return f'<svg {box} role="img" aria-label="{said}">{lines}</svg>'


def _table(found: Adaptation, course: Tensor) -> str:
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in found.classes)
    rows = "".join(
        f'<tr><th scope="row">{t}</th>{"".join(f"<td>{_percent(p)}</td>" for p in row)}</tr>'
        for t, row in enumerate(course)
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

    # There are eight colours; whoever comes after them is dashed.
    dashes = " ".join(
        f".c{n} {{ {DASHED} }} .c{n}::before {{ {DASHED_KEY} }}" for n in range(len(LIGHT.series), classes)
    )
    return f"{dashes} {rules(LIGHT.series)} @media (prefers-color-scheme: dark) {{ {rules(DARK.series)} }}"


def _image(seen: Picture, words: str) -> str:
    source = f"data:image/png;base64,{base64.b64encode(png(seen.image)).decode()}"
    return f'<img src="{source}" alt="{shown(words)}">'
