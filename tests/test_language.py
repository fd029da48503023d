"""The language of the source: docstrings are statements, the words are plain, and a class name means one thing."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import fastweights

SOURCE = Path(fastweights.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}

RELATIVE = re.compile(r"(What|Whatever|Those|Who|Whose|Whoever|How|Where)\b")
"""Openings of a docstring that is no sentence."""

QUAINT = re.compile(
    r"\b(nobody|whoever|somebody|everybody|strangers?|anew|way back|way forward|go(?:es)? on|gone on"
    r"|beside|born|(?:is|are|was) told|learn(?:s|ed)? by heart|of one's own)\b",
    re.IGNORECASE,
)

PARTICIPLES = {"found", "said", "seen", "told"}
"""Names of variables that say how a value came about, not what it is."""

WAITING = ("backends/chunkwise/", "compiler/affine/")
"""Parts with such variables: remove an entry with the revision of its part."""


def docstrings(name):
    """Pairs of a definition of a file and its docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(FILES[name].read_text())) if isinstance(node, kinds)]
    return [(getattr(node, "name", name), ast.get_docstring(node) or "") for node in nodes]


def test_docstrings_open_with_a_noun_or_a_verb():
    texts = ((name, definition, text) for name in FILES for definition, text in docstrings(name))
    wrong = [
        f"{name}, {definition}: {text.splitlines()[0]}" for name, definition, text in texts if RELATIVE.match(text)
    ]
    assert not wrong


def prose(name):
    """The strings and comments of a file."""
    tokens = tokenize.generate_tokens(io.StringIO(FILES[name].read_text()).readline)
    return [token for token in tokens if token.type in (tokenize.STRING, tokenize.COMMENT)]


def test_words_are_plain():
    texts = ((name, token) for name in FILES for token in prose(name))
    wrong = [f"{name}:{token.start[0]}: {match[0]}" for name, token in texts for match in QUAINT.finditer(token.string)]
    assert not wrong


def variables(name):
    """The line and the name of every variable that a function of a file assigns."""
    functions = (node for node in ast.walk(ast.parse(FILES[name].read_text())) if isinstance(node, ast.FunctionDef))
    nodes = [node for function in functions for node in ast.walk(function)]
    return [(node.lineno, node.id) for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def test_variables_name_things():
    names = [name for name in FILES if not name.startswith(WAITING)]
    wrong = [f"{name}:{line}: {v}" for name in names for line, v in variables(name) if v in PARTICIPLES]
    assert not wrong


def class_names():
    """Number of public top-level classes of every name."""
    nodes = [node for path in FILES.values() for node in ast.parse(path.read_text()).body]
    return Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def test_public_classes_have_different_names():
    assert [name for name, number in class_names().items() if number > 1] == []


def test_parts_that_wait_for_a_revision_exist():
    assert all(any(name.startswith(part) for name in FILES) for part in WAITING)
