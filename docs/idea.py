"""The picture of the idea: a slow network writes and reads the weights of a fast one."""

from html import escape

from fastweights.report.palette import LIGHT, dark_mode

WIDTH, HEIGHT = 640, 208
TITLE = "The slow network emits query, key, value and rate. They write and read the fast weights W at every time step."


def idea() -> str:
    """One time step of a fast weight programmer, as SVG."""
    slow, fast = LIGHT.series[-1], LIGHT.series[0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'role="img" font-size="14" font-family="system-ui, sans-serif">',
        f"<title>{TITLE}</title>",
        f"<style>{dark_mode()}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{LIGHT.paper}"/>',
        _text(36, 137, "input x", "middle"),
        _arrow(66, 132, 100, 132),
        _box(102, 72, 128, 120, slow),
        _text(166, 112, "slow network", "middle", "bold"),
        _text(166, 134, "trained by", "middle"),
        _text(166, 152, "gradient descent", "middle"),
        *_signals(),
        _box(404, 72, 128, 120, fast),
        _text(468, 112, "fast weights", "middle", "bold"),
        _text(468, 134, "matrix W, written", "middle"),
        _text(468, 152, "at every time step", "middle"),
        f'<path d="M 440 72 C 430 22, 506 22, 496 68" fill="none" stroke="{fast}" stroke-width="2"/>',
        _head(496, 70, fast, "down"),
        _text(468, 24, "W \u2190 W + \u03b2 (v \u2212 W k) k\u1d40", "middle"),
        _arrow(532, 132, 566, 132),
        _text(602, 137, "y = W q", "middle"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _signals() -> list[str]:
    """The four outputs of the slow network, as arrows into the fast weights."""
    names = ("key k: where to write", "value v: what to write", "rate \u03b2: how strongly", "query q: what to read")
    rows = [(96 + 26 * n, name) for n, name in enumerate(names)]
    return [part for y, name in rows for part in (_text(316, y - 5, name, "middle"), _arrow(232, y, 402, y))]


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    shape = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
    return f'<rect {shape} fill="none" stroke="{colour}" stroke-width="2"/>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    line = f'<path d="M {x} {y} L {to_x - 4} {to_y}" fill="none" stroke="{LIGHT.ink}" stroke-width="1.5"/>'
    return line + _head(to_x, to_y, LIGHT.ink, "right")


def _head(x: float, y: float, colour: str, direction: str) -> str:
    """The head of an arrow that points at (x, y)."""
    back = ((-8, -4), (-8, 4)) if direction == "right" else ((-4, -8), (4, -8))
    points = " ".join(f"{x + dx},{y + dy}" for dx, dy in ((0, 0), *back))
    return f'<polygon points="{points}" fill="{colour}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    size = 14 if weight == "bold" else 12.5
    look = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{LIGHT.ink}"'
    return f'<text x="{x}" y="{y}" {look}>{escape(words)}</text>'
