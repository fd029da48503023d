"""Pictures of the README and of the performance page: a diagram, and charts of the tables of docs/measurements."""

from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from idea import idea
from tables import read_table

from fastweights.registry import BACKENDS
from fastweights.report.palette import LIGHT, dark_mode

SHAPE = "8, 256, 8, 16"
RUNS = {
    "eager loop": "loop over time",
    "eager loop, unbound": "loop over unbound steps",
    "eager loop, torch.compile": "loop with torch.compile",
    "chunkwise": "chunkwise",
    "compiled": "compiled",
}
"""Runs of the delta rule, and their names in the chart."""
STEPS = {"eager step, no checks": "PyTorch step", **{name: name for name in ("reference", "chunkwise", "compiled")}}
"""Runs of one time step, and their names in the chart."""
WIDTH, NAMES, ROW, LINE, LETTERS = 480, 252, 24, 16, 66
"""Width, start of the bars, height of a row and of a line in pixels; letters per line of the caption."""


class Bar(NamedTuple):
    """A bar: its name, its value, and whether it is a backend of this library."""

    name: str
    value: float
    ours: bool


def bar_chart(title: str, caption: str, bars: list[Bar]) -> str:
    """Horizontal bars as SVG, in the colours of the reader's theme."""
    lines = wrap(caption, LETTERS)
    top = 38 + LINE * len(lines)
    height = top + ROW * len(bars) + 12
    longest = max(bar.value for bar in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" font-size="14" font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}: {escape(', '.join(f'{bar.name} {bar.value:,g}' for bar in bars))}</title>",
        f"<style>{dark_mode()}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="{LIGHT.paper}"/>',
        _text(12, 24, title, weight="bold"),
        *(_text(12, 42 + LINE * n, words, size=11) for n, words in enumerate(lines)),
        *(_bar(bar, top + ROW * n, longest) for n, bar in enumerate(bars)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def speed() -> str:
    """Chart of training speeds, relative to an eager loop over time."""
    table = read_table("delta-rule")
    delta = {row["run"]: row["times as fast as the eager loop"] for row in table.rows if row["B, T, H, K"] == SHAPE}
    rows = [row for row in read_table("cells").rows if row["B, T, H, K"] == SHAPE]
    # The table of the page on performance has the same numbers. They lack torch.compile.
    delta |= {row["run"]: row["times the eager loop"] for row in rows if row["cell"] == "delta"}
    cells = {
        row["cell"]: row["times the eager loop"] for row in rows if row["run"] == "compiled" and row["cell"] != "delta"
    }
    bars = [Bar(f"delta, {name}", float(delta[run]), run in BACKENDS.names()) for run, name in RUNS.items()]
    bars += [Bar(f"{cell}, compiled", float(times), True) for cell, times in sorted(cells.items()) if times]
    caption = f"Forward and backward pass at B, T, H, K = {SHAPE}; {table.comments[0]} Blue: this library."
    return bar_chart("Training: times as fast as a loop over time", caption, bars)


def one_step() -> str:
    """Chart of calls per millisecond of one time step of the gated delta rule."""
    table = read_table("one-step")
    times = {row["run"]: float(row["microseconds"]) for row in table.rows if row["cell"] == "gated-delta"}
    bars = [Bar(name, round(1000 / times[run], 1), run in BACKENDS.names()) for run, name in STEPS.items()]
    caption = f"gated-delta, 32 heads, K = V = 128, inference mode; {table.comments[0]} Blue: this library."
    return bar_chart("One time step: calls per millisecond", caption, bars)


def language_models() -> str:
    """Chart of tokens per second of training a character model."""
    table = read_table("character-model")
    name = next(iter(table.rows[0]))
    rates = {row[name]: float(row["tokens a second"].replace(",", "")) for row in table.rows}
    bars = [Bar(layer, rate, layer == "delta-net") for layer, rate in rates.items()]
    caption = f"Four blocks of width 128, windows of 256 characters; {table.comments[0]} Blue: this library."
    return bar_chart("Training a character model: tokens per second", caption, bars)


def _bar(bar: Bar, top: int, longest: float) -> str:
    length = (WIDTH - NAMES - 66) * bar.value / longest
    colour = LIGHT.series[0 if bar.ours else -1]
    return "\n".join(
        [
            _text(NAMES - 8, top + 16, bar.name, anchor="end", size=13),
            f'<rect x="{NAMES}" y="{top + 4}" width="{length:.1f}" height="{ROW - 8}" fill="{colour}"/>',
            _text(NAMES + length + 6, top + 16, f"{bar.value:,g}", size=13),
        ]
    )


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 15, weight: str = "normal") -> str:
    look = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{LIGHT.ink}"'
    return f'<text x="{x:.1f}" y="{y}" {look}>{escape(words)}</text>'


def write_pictures(folder: Path) -> None:
    """Writes the pictures as SVG files."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"idea": idea, "speed": speed, "one-step": one_step, "language-models": language_models}
    for name, draw in pictures.items():
        (folder / f"{name}.svg").write_text(draw(), encoding="utf-8")
