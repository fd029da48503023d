"""WMT14: news and parliamentary proceedings in English and German."""

from dataclasses import dataclass

from fastweights.core.files import read_file
from fastweights.tasks.data_sets.wmt14_en_de import FILES
from fastweights.tasks.sources.data_files import gunzip
from fastweights.tasks.sources.parallel_text import Parallel

PARTS = {"train": "train", "validation": "valid", "test": "test"}
LANGUAGES = {"source": "en", "target": "de"}
ESCAPES = {
    **{b"&quot;": b'"', b"&apos;": b"'", b"&lt;": b"<", b"&gt;": b">"},
    **{b"&#124;": b"|", b"&#91;": b"[", b"&#93;": b"]", b"&amp;": b"&"},
}
"""Escape sequences of Moses, which marks phrases with these characters."""


@dataclass(frozen=True)
class WMT14(Parallel):
    """Translation of news and parliamentary proceedings from English to German (WMT14).

    Input -> target: A sentence in English -> the same sentence in German.

    Files: `wmt14-en-de/train.en.gz`, `valid.en.gz` and `test.en.gz`, and the same in `.de.gz`: a sentence a line,
    UTF-8, tokenised by Moses or as it was. The whole corpus (4.5 million pairs) or any part of it: a run remembers
    which.

    Source: Bojar et al. 2014 (Findings of the 2014 Workshop on Statistical Machine Translation).
    """

    pieces: int = 32_000

    def read(self, part: str, language: str) -> bytes:
        file = FILES[f"{PARTS[part]}.{LANGUAGES[language]}"]
        content = gunzip(read_file(file.fetch(), file.path), file.path)
        for escaped, character in ESCAPES.items():
            content = content.replace(escaped, character)
        return content
