"""A page as a list of blocks, and its two forms: one self-contained HTML file, and Markdown with figures."""

import base64
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from fastweights.core.printable import printable
from fastweights.report.palette import variables


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
    """A table whose first column has the headings of rows; `words` if the other columns hold text, not numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False

    def upright(self) -> "Grid":
        """The table; transposed if it is wider than long."""
        if len(self.header) - 1 <= len(self.rows):
            return self
        header, *rows = zip(self.header, *self.rows, strict=True)
        return Grid(header, rows, self.words)


class Figure(NamedTuple):
    """A figure: the bytes of an SVG or PNG file, with a caption, which is also its alternative text."""

    name: str
    caption: str
    content: bytes
    kind: str = "svg"


KINDS = {"svg": "image/svg+xml", "png": "image/png"}

CODE = re.compile(r"(`(?:[^`\\]|\\(?!\|))+`)")
"""Code; it must not hold a backslash before a pipe, which is an escape in a table."""

MARKUP = re.compile(r"[\\*\[\]`~$|]|(?<![^\W_])_|_(?![^\W_])|(?<!http)(?<!https):(?=//)")
"""Characters with a meaning in Markdown: of emphasis, of links except to web pages, of formulas, of tables."""

ENTITY = re.compile(r"&(?=#?\w)")

BLOCK = re.compile(r"^(?:(\d{1,9})(?=[.)](?:\s|$))|(?=>|(?:[-+]|#{1,6})(?:\s|$)|[-=]{2,}$))")
"""Openings of lines that Markdown reads as a list, a heading, a quotation or a rule."""

Block = Heading | Paragraph | Bullets | Grid | Figure

STYLE = """
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
       margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
a { color: var(--link); } nav small { display: block; line-height: 1.8; } nav small a { white-space: nowrap; }
h1 { font-size: 1.6rem; line-height: 1.2; } h3 { font-size: 1.05rem; margin-top: 1.6rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
p, li { max-width: 48rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; line-height: 1.35; overflow-wrap: normal; width: max-content; }
.words table { width: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: bottom;
         font-variant-numeric: tabular-nums; }
td { white-space: nowrap; } thead th { border-bottom: 2px solid; }
.words :is(th, td) { text-align: left; vertical-align: top; white-space: normal; max-width: 26rem; }
.words td { min-width: 8rem; overflow-wrap: break-word; } .words td:last-child { min-width: 15rem; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); max-width: 40vw; }
tbody th { font-weight: normal; } ul { padding-left: 1.3rem; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; } img { width: 100%; height: auto; } figcaption { font-size: .85rem; }
.sheet { grid-column: 1 / -1; overflow-x: auto; } .sheet img { min-width: 60rem; }
"""


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One self-contained page, with links to its headings."""
    body = "\n".join(_elements(blocks))
    # Neighbouring figures stand side by side where there is room.
    body = body.replace('</figure></div>\n<div class="figures"><figure>', "</figure>\n<figure>")
    return framed(title, STYLE, body)


def framed(title: str, style: str, body: str) -> str:
    """A page with the colours of all pages, from a style sheet and the HTML of its body."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown(title)}</title><style>{variables()}{style}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def to_markdown(blocks: Sequence[Block], figures: str) -> str:
    """Markdown with links to its headings; its figures are `FIGURES/NAME.svg` or `.png`."""
    parts = [_markdown(block, figures) for block in blocks]
    contents = "\n".join(
        f"- {', '.join(f'[{_plain(text)}](#{anchor})' for anchor, text in part)}" for part in _contents(blocks)
    )
    return "\n\n".join(filter(None, [*parts[:1], contents, *parts[1:]])) + "\n"


def _anchors(blocks: Sequence[Block]) -> Iterator[str]:
    """The anchor of every heading, in order, by the rules of GitHub."""
    taken: Counter[str] = Counter()
    for block in blocks:
        if isinstance(block, Heading):
            name = re.sub(r"[^\w -]", "", block.text.lower()).replace(" ", "-")
            yield f"{name}-{taken[name]}" if taken[name] else name
            taken[name] += 1


def _contents(blocks: Sequence[Block]) -> list[list[tuple[str, str]]]:
    """Anchors and texts: one list per heading of level 2, followed by its headings of level 3."""
    sections: list[list[tuple[str, str]]] = []
    headings = [block for block in blocks if isinstance(block, Heading)]
    for (level, text), anchor in zip(headings, _anchors(blocks), strict=True):
        if level == 2:
            sections.append([])
        if level in (2, 3) and sections:
            sections[-1].append((anchor, text))
    return sections


def _elements(blocks: Sequence[Block]) -> Iterator[str]:
    anchors, anchor = _anchors(blocks), ""
    for n, block in enumerate(blocks):
        if isinstance(block, Heading):
            anchor = next(anchors)
        yield _html(block, anchor)
        if n == 0 and _contents(blocks):
            items = "".join(
                f"<li>{_links(part[:1])}<small>{_links(part[1:])}</small></li>" for part in _contents(blocks)
            )
            yield f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _links(entries: Sequence[tuple[str, str]]) -> str:
    return " · ".join(f'<a href="#{escape(anchor)}">{_inline(text)}</a>' for anchor, text in entries)


def _html(block: Block, anchor: str) -> str:
    """A block as HTML below the heading with this anchor."""
    match block:
        case Heading(level, text):
            return f'<h{level} id="{escape(anchor)}">{_inline(text)}</h{level}>'
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{_inline(item)}</li>' for item in items)}</ul>"
        case Grid(header, rows, words):
            head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in header)
            body = "".join(map(_row, rows))
            # A table that is wider than the page has its own scroll bar, which the keyboard moves as well.
            scrolled = (
                f'class="{"wide words" if words else "wide"}" role="region" tabindex="0" aria-labelledby="{anchor}"'
            )
            return f"<div {scrolled}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        case Figure(_, caption, content, kind):
            source = f"data:{KINDS[kind]};base64,{base64.b64encode(content).decode()}"
            image = f'<img src="{source}" alt="{shown(caption)}"><figcaption>{_inline(caption)}</figcaption>'
            # The letters of a PNG file do not scale: a wide one has its own scroll bar.
            sheet = "" if kind == "svg" else ' class="sheet" role="region" tabindex="0"'
            return f'<div class="figures"><figure{sheet}>{image}</figure></div>'


def _row(cells: Sequence[str]) -> str:
    rest = "".join(f"<td>{_inline(cell)}</td>" for cell in cells[1:])
    return f'<tr><th scope="row">{_inline(cells[0])}</th>{rest}</tr>'


def shown(text: str) -> str:
    """Text in HTML, between tags or as the value of an attribute."""
    return escape(printable(text, allowed="\n\t"))


def _inline(text: str) -> str:
    """Text in HTML; text between backticks becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", shown(text))


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
            first, *others = ([_plain(cell) for cell in row] for row in (header, *rows))
            return "\n".join(f"| {' | '.join(row)} |" for row in (first, rule, *others))
        case Figure(name, caption, _, kind):
            return f"![{_plain(caption)}]({figures}/{name}.{kind})"


def _plain(text: str) -> str:
    """Markdown that shows a text literally, in one line; text between backticks becomes code.

    The only escape in code is that of the separator of table cells. A text makes no link and no element of HTML.
    """
    parts = CODE.split(printable(" ".join(text.split())))
    line = "".join(part.replace("|", "\\|") if n % 2 else _escaped(part) for n, part in enumerate(parts))
    return BLOCK.sub(r"\1\\", line)


def _escaped(text: str) -> str:
    return ENTITY.sub("&amp;", MARKUP.sub(r"\\\g<0>", text)).replace("<", "&lt;")
