"""The light and dark colours of a page and of its figures."""

from itertools import chain
from typing import NamedTuple


class Scheme(NamedTuple):
    """Background, text, grid, links, and colours of lines that most colour-blind readers can distinguish."""

    paper: str
    ink: str
    faint: str
    link: str
    series: tuple[str, ...]

    @property
    def colours(self) -> tuple[str, ...]:
        """The colours of figures, in the same order in every scheme."""
        return (self.paper, self.ink, self.faint, *self.series)


LIGHT = Scheme(
    paper="#fffffe",
    ink="#1a1a1b",
    faint="#d0d0d1",
    link="#0550ae",
    series=("#0072b2", "#d55e00", "#009e73", "#c4619f", "#a87400", "#1f92cc", "#7a4fc0", "#7f7f80"),
)
DARK = Scheme(
    paper="#121213",
    ink="#e6e6e7",
    faint="#3c3c3d",
    link="#79b8ff",
    series=("#4aa8e0", "#ff8a3c", "#2fc998", "#ee9ccb", "#e6b422", "#9bdcff", "#b79cf2", "#a6a6a7"),
)
"""All colours of a scheme differ, and none is a default of matplotlib: `dark_mode` replaces a colour by its value."""


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue, from 0 to 255.

    >>> rgb("#0072b2")
    (0, 114, 178)
    """
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


def variables() -> str:
    """A style sheet with the colours of a page under the names `--paper`, `--ink`, `--line` and `--link`."""
    light, dark = (
        f"--paper: {scheme.paper}; --ink: {scheme.ink}; --line: {scheme.faint}; --link: {scheme.link}"
        for scheme in (LIGHT, DARK)
    )
    return f":root {{ color-scheme: light dark; {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def dark_mode() -> str:
    """A style sheet that replaces the light colours of an SVG by the dark ones on a dark screen.

    It is part of the SVG file. A reader that ignores style sheets shows the light colours.
    """
    pairs = zip(LIGHT.colours, DARK.colours, strict=True)
    rules = chain.from_iterable((_rule("fill", old, new), _rule("stroke", old, new)) for old, new in pairs)
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def _rule(part: str, old: str, new: str) -> str:
    return f'[style*="{part}: {old}"], [{part}="{old}"] {{ {part}: {new} !important }}'
