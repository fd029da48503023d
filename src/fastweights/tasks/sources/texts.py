"""Texts of stories, and of random letters."""

import random
import re
import string
from pathlib import Path

from fastweights.core.errors import require
from fastweights.core.files import decoded
from fastweights.tasks.sources.archives import members

TURN = 1000
LENGTH = 100_000
STORIES = re.compile(r"en/qa\d+_.*_test\.txt$")


def stories_of(path: Path) -> str:
    """Stories of the archive of bAbI, with questions but no answers, a thousand characters of each task in turn."""
    contents = dict(members(path, STORIES.search))
    require(bool(contents), "folder", "the archive of bAbI, with en/qa1_..._test.txt", path)
    stories = [
        re.sub(r"^\d+ |\t.*$", "", decoded(contents[name], name, path), flags=re.MULTILINE) for name in sorted(contents)
    ]
    turns = range(0, min(map(len, stories)), TURN)
    return "".join(story[begin : begin + TURN] for begin in turns for story in stories)


def noise() -> str:
    """Uniformly random letters and gaps. Only a memory of the text can reach less than log2(27) = 4.75 bits."""
    return "".join(random.Random(1).choices(f" {string.ascii_lowercase}", k=LENGTH))
