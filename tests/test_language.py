"""The language of the code: docstrings are statements, words and names are plain, and a class name has one meaning."""

import ast
import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks")
FILES = {
    path.relative_to(ROOT).as_posix(): path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
}

RELATIVE = re.compile(r"(What|Whatever|Those|Who|Whose|Whoever|How|Where)\b")
"""Openings of a docstring that are not a statement."""

QUAINT = re.compile(
    r"\b(nobody|whoever|somebody|everybody|strangers?|anew|way back|way forward|go(?:es)? on|gone on"
    r"|beside|born|(?:is|are|was) told|learn(?:s|ed)? by heart|of one's own)\b",
    re.IGNORECASE,
)
QUOTING = ("tests/test_language.py", "tests/test_prose.py")
"""Files whose patterns have these words."""

PARTICIPLES = {"found", "given", "kept", "said", "seen", "told"}
"""Names of variables and parameters that describe the origin of a value, not the value."""

UNPROFESSIONAL = re.compile(
    r"(?<![a-z])(alike|anew|asked|beside|elsewhere|fading|ours|pictures?|seats?|tells?|theirs|told|twins?|wanted|what|who"
    r"|whose|worlds?)(?![a-z])"
)
"""Words that names in the library do not have. The field says: equal, queries, image, other."""

VAGUE = re.compile(r"\b(what|who|said|told|s own)\b")
"""Words that names of tests do not have, besides those of `QUAINT`."""
LONGEST = 80
"""Characters of the name of a test."""


@cache
def definitions(name):
    """The modules, classes and functions of a file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(ast.parse(FILES[name].read_text())) if isinstance(node, kinds)]


def docstrings(name):
    """Pairs of the name of a definition and its docstring."""
    return [(getattr(node, "name", name), ast.get_docstring(node) or "") for node in definitions(name)]


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
    texts = ((name, token) for name in FILES if name not in QUOTING for token in prose(name))
    wrong = [f"{name}:{token.start[0]}: {match[0]}" for name, token in texts for match in QUAINT.finditer(token.string)]
    assert not wrong


def variables(name):
    """The line and the name of every parameter of a function of a file, and of every variable that it assigns."""
    functions = [node for node in definitions(name) if isinstance(node, ast.FunctionDef)]
    nodes = [node for function in functions for node in ast.walk(function)]
    assigned = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    parameters = [node for node in nodes if isinstance(node, ast.arg)]
    return [*((node.lineno, node.id) for node in assigned), *((node.lineno, node.arg) for node in parameters)]


def test_variables_name_things():
    wrong = [f"{name}:{line}: {v}" for name in FILES for line, v in variables(name) if v in PARTICIPLES]
    assert not wrong


def words(name):
    """The words of an identifier, in lower case."""
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def test_names_in_the_library_have_the_words_of_the_field():
    files = [name for name in FILES if name.startswith("src/")]
    modules = [(name, Path(name).stem) for name in files]
    defined = [(name, node.name) for name in files for node in definitions(name) if not isinstance(node, ast.Module)]
    assigned = [(name, variable) for name in files for _, variable in variables(name)]
    wrong = [f"{name}: {x}" for name, x in modules + defined + assigned if UNPROFESSIONAL.search(words(x))]
    assert not wrong


def names_of_tests(name):
    """The names of the test functions of a file."""
    functions = [node for node in definitions(name) if isinstance(node, ast.FunctionDef)]
    return [function.name for function in functions if function.name.startswith("test_")]


def test_names_of_tests_state_properties():
    names = [(name, test) for name in FILES if name.startswith("tests/") for test in names_of_tests(name)]
    words = [(f"{name}: {test}", test.replace("_", " ")) for name, test in names]
    assert not [place for place, text in words if QUAINT.search(text) or VAGUE.search(text)]
    assert not [test for _, test in names if len(test) > LONGEST]


def class_names():
    """Number of public top-level classes of the library, by name."""
    paths = [path for name, path in FILES.items() if name.startswith("src/")]
    nodes = [node for path in paths for node in ast.parse(path.read_text()).body]
    return Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def test_public_classes_have_different_names():
    assert [name for name, number in class_names().items() if number > 1] == []
