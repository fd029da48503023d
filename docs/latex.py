"""Formulas of docstrings as LaTeX.

Docstrings have formulas in plain text, which `help()` shows: `W <- W + beta (v - W k) k^T`. The notation:

- `<-` assigns, `x_i`, `x_(i-1)`, `x^2` and `x^-1` are subscripts and superscripts, `^T` is the transpose;
- `*` multiplies element by element, ` . ` is a dot product, `|x|` a norm, ` | ` "given", `+-` plus or minus;
- names of Greek letters are these letters, other names of several letters are upright, and `"words"` are text.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

SYMBOLS = {
    **{"<-": r"\leftarrow", "->": r"\to", "+-": r"\pm", "...": r"\ldots", "~": r"\sim", "*": r"\odot", " . ": r"\cdot"},
    **{" | ": r"\mid", ",  ": r",\quad", "{": r"\{", "}": r"\}", "<=": r"\le", ">=": r"\ge"},
}
GREEK = {"alpha", "beta", "eta", "lambda", "sigma", "phi", "theta", "mu", "nu", "pi", "Lambda", "Delta"}
OPERATORS = {"exp", "log", "max", "min", "tanh", "sum"}
NAMES = {"eps": r"\varepsilon", "grad": r"\nabla"} | {name: rf"\{name}" for name in GREEK | OPERATORS}
TOKEN = re.compile(r'"[^"]*"|<-|->|<=|>=|\+-|\.\.\.| \. | \| |,  |[A-Za-z]+\'*|\d+(?:\.\d+)?|[-+*/=~^_()\[\]{}|,;.]')
RELATION = re.compile(r"<-|=|~")
CONDITION = re.compile(r', (?=\w+ (?:=|<-|~|"))')
"""The comma in front of a condition, such as `l = 1, ..., L`."""
WORD = re.compile(r"\\mathrm")
NAME = re.compile(r"\w|\\mathrm|\\operatorname|" + "|".join(rf"\\{name}\b" for name in sorted(GREEK)))
SCRIPTS = {"T": r"\mathsf{T}"}
UPRIGHT = 3
"""Letters of a subscript that is a word and no index."""


def latex(formula: str) -> str:
    r"""Converts a formula to LaTeX, one row per line, aligned at the first relation of each row.

    >>> print(latex("W <- decay W + beta (v - W k) k^T"))
    W \leftarrow \mathrm{decay} \, W + \beta ( v - W k ) k^{\mathsf{T}}
    """
    rows = [CONDITION.sub(",  ", line.strip()) for line in formula.splitlines() if line.strip()]
    if len(rows) == 1:
        return _join(_tokens(rows[0]))
    return r"\begin{aligned} " + r" \\ ".join(map(_aligned, rows)) + r" \end{aligned}"


def _aligned(row: str) -> str:
    relation = RELATION.search(row)
    start = relation.start() if relation else 0
    return f"{_join(_tokens(row[:start]))} & {_join(_tokens(row[start:]))}"


def _tokens(text: str) -> list[str]:
    """Tokens of a formula in reverse order, since they are popped from the end of the list."""
    unknown = TOKEN.sub("", text).strip()
    if unknown:
        raise ValueError(f"formula must have only symbols of docs/latex.py, got {unknown!r} in {text!r}")
    return TOKEN.findall(text)[::-1]


def _join(tokens: list[str]) -> str:
    parts = list(_parts(tokens))
    spaces = [r" \," if _touch(*pair) else "" for pair in pairwise([*parts, ""])]
    return " ".join(part + space for part, space in zip(parts, spaces, strict=True))


def _touch(part: str, after: str) -> bool:
    """Whether two adjacent names, at least one of them with several letters, need a space."""
    words = WORD.search(part), WORD.match(after)
    return bool((words[0] and NAME.match(after)) or (words[1] and NAME.match(part)))


def _parts(tokens: list[str]) -> Iterator[str]:
    """LaTeX of each symbol, with its subscripts and superscripts."""
    is_open = False
    while tokens:
        token = tokens.pop()
        if token == "|":
            is_open = not is_open
            part = r"\lvert" if is_open else r"\rvert"
        elif token == "sqrt":
            part = rf"\sqrt{{{_argument(tokens)}}}"
        else:
            part = _symbol(token, tokens[-1] if tokens else "")
        yield part + "".join(_scripts(tokens))


def _scripts(tokens: list[str]) -> Iterator[str]:
    while tokens and tokens[-1] in ("_", "^"):
        yield f"{tokens.pop()}{{{_argument(tokens)}}}"


def _argument(tokens: list[str]) -> str:
    """A symbol, or several in parentheses, without the parentheses."""
    token = tokens.pop()
    if token == "-":
        return "-" + _argument(tokens)
    if token != "(":
        return SCRIPTS.get(token) or (
            token if len(token) < UPRIGHT and token not in NAMES else _symbol(token, "").replace("{ ", "{")
        )
    inside: list[str] = []
    while inside.count("(") >= inside.count(")"):
        inside.append(tokens.pop())
    return _join(inside[-2::-1])


def _symbol(token: str, after: str) -> str:
    """LaTeX of a token that is followed by `after`."""
    name = token.rstrip("'")
    if token.startswith('"'):
        return r"\text{ " + token[1:-1].replace("_", r"\_") + ("}" if after in ("(", "_", "") else " }")
    if not name.isalpha():
        return SYMBOLS.get(token, token)
    if len(name) > 1 and name not in NAMES:
        name = rf"\operatorname{{{name}}}" if after in ("(", "_") else rf"\mathrm{{{name}}}"
    return NAMES.get(name, name) + token[len(token.rstrip("'")) :]
