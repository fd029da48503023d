"""The pictures of the README: the idea, and the speed that `benchmarks/scan.py` wrote into `docs/performance.md`."""

from html import escape
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from idea import idea

from fastweights.registry import BACKENDS
from fastweights.report.palette import LIGHT, dark_mode

SHAPE = "8, 256, 8, 16"
DELTA = {
    "eager loop": "the loop by hand",
    "eager loop, unbound": "cut into steps once",
    "eager loop, torch.compile": "with torch.compile",
    "chunkwise": "chunkwise",
    "compiled": "compiled",
}
"""Ways to run the delta rule, and what the picture calls them."""
WIDTH, NAMES, ROW, LINE, LETTERS = 480, 252, 24, 16, 66
"""Points, but the last, which are those of a line; the bars begin at NAMES."""


class Bar(NamedTuple):
    """How many times as fast as the loop over time something runs; whether it is a backend of ours."""

    name: str
    times: float
    ours: bool


def speed(page: str) -> str:
    """Training with a memory, as times the speed of the loop that one would write by hand, as SVG."""
    bars = read_bars(page)
    machine = next(line for line in page.splitlines() if line.startswith("float32, medians")).removesuffix(".")
    told = wrap(f"Forward + backward at B, T, H, K = {SHAPE}; {machine}. Blue: this library.", LETTERS)
    top = 38 + LINE * len(told)
    height = top + ROW * len(bars) + 12
    longest = max(bar.times for bar in bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" font-size="14" font-family="system-ui, sans-serif">',
        f"<title>Times as fast as the loop over time: {', '.join(f'{bar.name} {bar.times:g}' for bar in bars)}</title>",
        f"<style>{dark_mode()}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="{LIGHT.paper}"/>',
        _text(12, 24, "Training: times as fast as the loop over time", weight="bold"),
        *(_text(12, 42 + LINE * n, words, size=11) for n, words in enumerate(told)),
        *(_bar(bar, top + ROW * n, longest) for n, bar in enumerate(bars)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def read_bars(page: str) -> list[Bar]:
    """The delta rule in several ways, then compiled what else was measured beside a loop by hand."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    # | B, T, H, K | run | forward | forward + backward | times | kept | states |
    delta = {row[1]: row[4] for row in rows if row[0] == SHAPE and row[1] in DELTA}
    # | B, T, H, K | cell | run | forward | forward + backward | times | auto takes |
    others = {
        row[1]: row[5] for row in rows if row[0] == SHAPE and row[2] == "compiled" and row[5] and row[1] != "delta"
    }
    found = [Bar(f"delta, {words}", float(delta[run]), run in BACKENDS.names()) for run, words in DELTA.items()]
    return found + [Bar(f"{cell}, compiled", float(times), True) for cell, times in sorted(others.items())]


def _bar(bar: Bar, top: int, longest: float) -> str:
    length = (WIDTH - NAMES - 56) * bar.times / longest
    colour = LIGHT.series[0 if bar.ours else -1]
    return "\n".join(
        [
            _text(NAMES - 8, top + 16, bar.name, anchor="end", size=13),
            f'<rect x="{NAMES}" y="{top + 4}" width="{length:.1f}" height="{ROW - 8}" fill="{colour}"/>',
            _text(NAMES + length + 6, top + 16, f"{bar.times:g}", size=13),
        ]
    )


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 15, weight: str = "normal") -> str:
    look = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{LIGHT.ink}"'
    return f'<text x="{x:.1f}" y="{y}" {look}>{escape(words)}</text>'


def write_pictures(folder: Path, page: Path) -> None:
    """Writes `FOLDER/idea.svg`, and `FOLDER/speed.svg` from the page with the measurements."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "idea.svg").write_text(idea(), encoding="utf-8")
    (folder / "speed.svg").write_text(speed(page.read_text(encoding="utf-8")), encoding="utf-8")
