"""Sentence lengths of the prose of all pages.

python docs/sentences.py             # mean and maximum per page, the longest sentences last
python docs/sentences.py --most 30   # sentences with more than 30 words
"""

import argparse
import re
from pathlib import Path
from statistics import mean
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NO_PROSE = re.compile(
    r"^( *)```.*?^\1```|<!--.*?-->|^(?:    |\t).*?$|^\|.*?$|^#.*?$|^\$\$.*?^\$\$|^---$", re.MULTILINE | re.DOTALL
)
"""Code, comments, tables, headings and formulas."""
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`|\$[^$\n]+\$")
END = re.compile(r"(?<=[.!?])[)*\"]*\s+(?=[A-Z*\"(])")
ITEM = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ")


class Page(NamedTuple):
    """A page, its sentences and their numbers of words."""

    path: Path
    sentences: list[str]

    @property
    def lengths(self) -> list[int]:
        return [len(sentence.split()) for sentence in self.sentences]


def pages() -> list[Path]:
    """All pages of the repository."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def read(path: Path) -> Page:
    """The sentences of a page. Inline code and inline formulas count as one word each."""
    text = NO_PROSE.sub("\n\n", path.read_text(encoding="utf-8"))
    text = CODE.sub("Code", LINK.sub(r"\1", text))
    blocks = (" ".join(block.split()) for block in ITEM.split(text))
    return Page(path, [sentence for block in blocks for sentence in END.split(block) if len(sentence.split()) > 2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--most",
        type=int,
        default=40,
        metavar="WORDS",
        help="maximum length of sentences that are not printed (default: %(default)s)",
    )
    limit = parser.parse_args().most
    measured = [page for page in map(read, pages()) if page.sentences]
    for page in sorted(measured, key=lambda page: max(page.lengths)):
        print(f"{mean(page.lengths):5.1f} {max(page.lengths):4d}  {page.path.relative_to(ROOT)}")
    for page in measured:
        for sentence in page.sentences:
            if len(sentence.split()) > limit:
                print(f"{page.path.relative_to(ROOT)}: {sentence}")


if __name__ == "__main__":
    main()
