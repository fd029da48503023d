"""A page as a list of blocks, and its two forms: one HTML file that needs no other, and Markdown with pictures."""

import base64
from collections.abc import Sequence
from html import escape
from typing import NamedTuple


class Heading(NamedTuple):
    """A heading of level 1, 2, ..."""

    level: int
    text: str


class Paragraph(NamedTuple):
    """A few sentences."""

    text: str


class Bullets(NamedTuple):
    """A list."""

    items: Sequence[str]


class Grid(NamedTuple):
    """A table; the first column is a heading of its row. The others hold numbers, or words, which may be long."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


class Figure(NamedTuple):
    """A picture as SVG, with the words for who cannot see it."""

    name: str
    caption: str
    svg: bytes


Block = Heading | Paragraph | Bullets | Grid | Figure

STYLE = """
:root { color-scheme: light dark; --line: #8886; }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: CanvasText; background: Canvas; max-width: 70rem; margin: 0 auto;
       padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h3 { font-size: 1.05rem; margin-top: 1.6rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
p, li { max-width: 48rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; line-height: 1.35; overflow-wrap: normal; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: bottom;
         font-variant-numeric: tabular-nums; }
td { white-space: nowrap; } thead th { border-bottom: 2px solid #888; }
.words :is(th, td) { text-align: left; vertical-align: top; white-space: normal; overflow-wrap: anywhere; }
th:first-child { text-align: left; position: sticky; left: 0; background: Canvas; }
tbody th { font-weight: normal; } .words tbody th { white-space: nowrap; } ul { padding-left: 1.3rem; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; } img { width: 100%; height: auto; } figcaption { font-size: .85rem; }
"""


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One page that loads nothing."""
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    body = "\n".join(map(_html, blocks))
    # Neighbouring figures stand side by side where there is room.
    body = body.replace('</figure></div>\n<div class="figures"><figure>', "</figure>\n<figure>")
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def to_markdown(blocks: Sequence[Block], figures: str) -> str:
    """Markdown whose pictures are `FIGURES/NAME.svg`."""
    return "\n\n".join(_markdown(block, figures) for block in blocks) + "\n"


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
        case Grid(header, rows, words):
            head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
            body = "".join(map(_row, rows))
            kind = "wide words" if words else "wide"
            return f'<div class="{kind}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        case Figure(_, caption, svg):
            source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
            picture = f'<img src="{source}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption>'
            return f'<div class="figures"><figure>{picture}</figure></div>'


def _row(cells: Sequence[str]) -> str:
    rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
    return f'<tr><th scope="row">{escape(cells[0])}</th>{rest}</tr>'


def _markdown(block: Block, figures: str) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_plain(text)}"
        case Paragraph(text):
            return _plain(text)
        case Bullets(items):
            return "\n".join(f"- {_plain(item)}" for item in items)
        case Grid(header, rows, words):
            rule = ["---", *["---" if words else "---:"] * (len(header) - 1)]
            return "\n".join(f"| {' | '.join(_plain(cell) for cell in row)} |" for row in (header, rule, *rows))
        case Figure(name, caption, _):
            return f"![{_plain(caption)}]({figures}/{name}.svg)"


def _plain(text: str) -> str:
    """Text that Markdown takes as it is."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
