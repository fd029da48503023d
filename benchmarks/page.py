"""Tables of benchmarks on pages, between marks with the name of the benchmark."""

from pathlib import Path

END = "<!-- to here -->\n"


def put(page: Path, benchmark: str, text: str) -> None:
    """Replaces the text between `<!-- benchmarks/NAME.py writes from here -->` and `<!-- to here -->`."""
    before, _, after = _parts(page, benchmark)
    page.write_text(f"{before}{_begin(benchmark)}\n{text.strip()}\n\n{END}{after}")


def written(page: Path, benchmark: str) -> str:
    """The text between the marks of a benchmark."""
    return _parts(page, benchmark)[1].strip()


def _parts(page: Path, benchmark: str) -> tuple[str, str, str]:
    before, begin, rest = (page.read_text() if page.is_file() else "").partition(_begin(benchmark))
    if not begin or END not in rest:
        raise SystemExit(f"{page} must have a line {_begin(benchmark).strip()}, and later {END.strip()}, got none.")
    inside, _, after = rest.partition(END)
    return before, inside, after


def _begin(benchmark: str) -> str:
    return f"<!-- benchmarks/{benchmark}.py writes from here -->\n"
