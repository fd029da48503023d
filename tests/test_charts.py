"""Charts of a report: complete texts, useful limits, and colours for light and dark mode."""

import io
import math
import re
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastweights.report.chart import Chart, Line, draw
from fastweights.report.heat_map import HeatMap, draw_map
from fastweights.report.learning_curve import apart
from fastweights.report.limits import find_limits
from fastweights.report.palette import DARK, LIGHT, dark_mode

SVG = "{http://www.w3.org/2000/svg}"


def curve(floor, start=0.5, n=30):
    """A curve from `start` down to `floor`."""
    return [(100.0 * i, floor + (start - floor) * math.exp(-6 * i / n)) for i in range(1, n + 1)]


def chart(lines, **other):
    names = list(dict.fromkeys(line.name for line in lines))
    return Chart(
        **{"title": "S = 20", "across": "updates", "up": "validation loss", "errors": True}
        | other
        | {
            "names": names,
            "lines": lines,
        }
    )


LONG = [f"Rule of Schlag, Irie and Schmidhuber (2021), DPFP-{n}, normalised by its sum" for n in range(10)]
LONG_TEXTS = {
    "title": "Code execution with five variables and conditional statements " * 2,
    "up": "sequences, per cent " * 6,
}
DIFFICULT = {
    "ten models with long names": chart([Line(name, curve(0.01 * n)) for n, name in enumerate(LONG, 1)], **LONG_TEXTS),
    "one endless word": chart([Line("W" * 90, curve(0.1)), Line("b", curve(0.2))]),
    "twenty models": chart([Line(f"model {n}", curve(0.05 * n)) for n in range(1, 21)]),
    "huge numbers": chart([Line("a", [(1e7 * x, -1e9 * y) for x, y in curve(0.3)])], errors=False),
    "tiny numbers": chart([Line("a", [(1e-3 * x, 1e-9 * y) for x, y in curve(0.3)])]),
    "one number": chart([Line("a", [(100, 0.3)])]),
    "no number": chart([Line("a", [(100, math.nan), (200, math.nan)]), Line("b", [(100, math.inf)])]),
    "ours and published": chart(
        [Line(name, curve(0.1), **how) for name in LONG[:3] for how in ({}, {"is_published": True}, {"dots": True})]
    ),
}


@cache
def svg_of(name):
    return draw(DIFFICULT[name])


def parse(svg):
    comments = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    return ElementTree.parse(io.BytesIO(svg), comments).getroot()


def matrix(transform):
    """An SVG transform as a 3 x 3 matrix."""
    result = np.eye(3)
    for kind, numbers in re.findall(r"(\w+)\(([^)]*)\)", transform or ""):
        x, y = (*map(float, re.split(r"[ ,]+", numbers.strip())), 0.0)[:2]
        angle = math.radians(x)
        result = (
            result
            @ {
                "translate": np.array([[1, 0, x], [0, 1, y], [0, 0, 1]]),
                "scale": np.diag([x, y or x, 1]),
                "rotate": np.array(
                    [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]]
                ),
            }[kind]
        )
    return result


def texts(svg):
    """Every text with the corners of its letters, which are paths."""
    root = parse(svg)
    letters = {
        path.get("id"): matrix(path.get("transform")) @ corners(path.get("d"))
        for path in root.iter(f"{SVG}path")
        if path.get("id") and path.get("d")
    }
    for group in root.iter(f"{SVG}g"):
        words = [part.text.strip() for part in group if part.tag is ElementTree.Comment]
        for text, piece in zip(words, [part for part in group if part.tag == f"{SVG}g"], strict=False):
            uses = [use for use in piece.iter(f"{SVG}use") if link(use) in letters]
            placed = [
                matrix(piece.get("transform")) @ matrix(use.get("transform")) @ letters[link(use)] for use in uses
            ]
            if placed:
                yield text, np.hstack(placed)


def link(use):
    return use.get("{http://www.w3.org/1999/xlink}href").removeprefix("#")


def corners(d):
    """The points of a path and the control points of its curves, which bound the path."""
    points = np.array([float(number) for number in re.findall(r"-?[\d.]+", d)]).reshape(-1, 2).T
    return np.vstack([points, np.ones(points.shape[1])])


@pytest.mark.parametrize("name", DIFFICULT)
def test_no_text_is_cut_off(name):
    _, _, width, height = map(float, parse(svg_of(name)).get("viewBox").split())
    placed_texts = dict(texts(svg_of(name)))
    assert len(placed_texts) >= 6
    for text, points in placed_texts.items():
        (left, top), (right, bottom) = points[:2].min(1), points[:2].max(1)
        assert left >= 0 <= top and right <= width and bottom <= height, text  # noqa: PT018


@pytest.mark.parametrize("name", DIFFICULT)
def test_legend_names_every_line(name):
    legend = svg_of(name).decode().partition('id="legend_1"')[2]
    words = "".join(re.findall("<!-- (.*?) -->", legend))
    for line in DIFFICULT[name].lines:
        assert re.sub(r"\s", "", line.name) in re.sub(r"\s", "", words)
    assert ("the paper's" in words) == any(line.is_published for line in DIFFICULT[name].lines)


@pytest.mark.parametrize("name", DIFFICULT)
def test_every_colour_has_a_dark_mode(name):
    svg = svg_of(name).decode()
    assert svg.count("@media (prefers-color-scheme: dark)") == 1
    light_only = svg.replace(dark_mode(), "")
    assert set(re.findall("#[0-9a-f]{6}", light_only)) <= set(LIGHT.colours)
    assert not re.search("(fill|stroke): (black|white|rgb)", light_only)
    for text in parse(svg_of(name)).iter(f"{SVG}g"):
        if any(part.tag is ElementTree.Comment for part in text):
            assert all("fill" in part.get("style", "") for part in text if part.tag == f"{SVG}g"), "black by default"


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_have_sufficient_contrast(scheme):
    """The ratios of WCAG 2: 4.5 for text, 3 for graphical objects."""

    def luminance(colour):
        parts = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    def contrast(colour):
        dark, light = sorted((luminance(colour), luminance(scheme.paper)))
        return (light + 0.05) / (dark + 0.05)

    assert min(map(contrast, (scheme.ink, scheme.link))) >= 4.5
    assert min(map(contrast, scheme.series)) >= 3
    assert len(set(scheme.colours)) == len(scheme.colours)


def test_equal_lines_give_equal_files():
    assert draw(DIFFICULT["ours and published"]) == svg_of("ours and published")


OUTLIERS = {
    "return": ([[-3 + y for _, y in curve(0.1 * n)] for n in range(1, 5)], -950.0, False),
    "accuracy": ([[100 - y for _, y in curve(0.1 * n)] for n in range(1, 5)], 10.0, False),
    "loss": ([[y for _, y in curve(0.1 * n)] for n in range(1, 5)], 9.5, True),
    "exploded": ([[y for _, y in curve(0.1 * n)] for n in range(1, 5)], 1e30, True),
}


@pytest.mark.parametrize("name", OUTLIERS)
def test_outlier_leaves_the_limits_and_has_an_arrow(name):
    lines, outlier, errors = OUTLIERS[name]
    limits = find_limits([*lines, [outlier] * 30], logarithmic=False, errors=errors)
    places = [limits.place(y) for line in lines for y in line]
    assert min(places) >= 0
    assert max(places) <= 1
    assert max(places) - min(places) > 0.3
    points = [[(100 * i, y) for i, y in enumerate(line)] for line in (*lines, [outlier] * 30)]
    result = chart([Line(f"model {n}", line) for n, line in enumerate(points)], errors=errors)
    is_visible = 0 <= limits.place(outlier) <= 1
    direction = "up to" if outlier > 0.5 and errors else "down to"
    assert result.remarks == (
        "" if is_visible else f"Beyond the axis, at the arrows: model 4 ({direction} {outlier:.3g})."
    )
    axes = draw(result).decode().replace(dark_mode(), "").partition('id="legend_1"')[0]
    assert (f"fill: {LIGHT.series[4]}" in axes) is not is_visible, "the arrow is the only filled shape"


def test_one_outlying_point_leaves_the_limits():
    line = [(x, 10.0 if x == 1500 else y) for x, y in curve(0.3)]
    assert chart([Line("LSTM", line)]).limits.high < 1
    assert chart([Line("LSTM", line)]).remarks == "Beyond the axis, at the arrows: LSTM (up to 10)."


def test_start_of_all_lines_is_within_the_limits():
    lines = [[y for _, y in curve(floor, start=90)] for floor in (2.0, 2.5, 4.0)]
    limits = find_limits(lines, logarithmic=False, errors=False)
    assert limits.low < 2
    assert limits.high > 70


def test_only_losses_over_decades_have_a_logarithmic_axis():
    line = [y for _, y in curve(0.001)]
    assert find_limits([line], logarithmic=False, errors=True).logarithmic
    assert not find_limits([line], logarithmic=False, errors=False).logarithmic
    assert not find_limits([[0.4, 0.5]], logarithmic=False, errors=True).logarithmic
    assert find_limits([[0.4, 0.5]], logarithmic=True, errors=True).logarithmic, "as in the paper's figure"


def test_remark_names_points_outside_the_axis():
    broken = chart([Line("a", [(1, 0.4), (2, math.nan), (3, math.nan)]), Line("b", [(1, 0.5), (2, math.inf)])])
    assert broken.remarks == "Beyond the axis, at the arrows: b (up to inf). Not a number from the cross on: a."
    assert [(marker.mark, marker.name, marker.x) for marker in broken.signs] == [("x", "a", 2), ("^", "b", 2)]
    zero = chart([Line("a", [(1, 0.4), (2, 0.0)])], logarithmic=True)
    assert zero.remarks == "Beyond the axis, at the arrows: a (down to 0)."
    assert DIFFICULT["twenty models"].remarks == ""


@given(
    st.lists(st.lists(st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, 0.0]), max_size=8), max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_axis_shows_most_finite_lines(lines, logarithmic, errors):
    limits = find_limits(lines, logarithmic, errors)
    assert math.isfinite(limits.low) and limits.low < limits.high < math.inf  # noqa: PT018
    drawable = [[y for y in line if math.isfinite(y) and (y >= 1e-307 or not limits.logarithmic)] for line in lines]
    drawable = [line for line in drawable if line]
    visible = [line for line in drawable if any(0 <= limits.place(y) <= 1 for y in line)]
    assert len(visible) >= 2 / 3 * len(drawable)


@given(st.lists(st.floats(0, 10), max_size=8).map(sorted))
def test_labels_of_learning_curves_do_not_overlap(heights):
    moved = apart(heights, 0.5)
    assert all(above - below >= 0.5 - 1e-9 for below, above in pairwise(moved))
    assert all(new >= old for new, old in zip(moved, heights, strict=True))
    if all(above - below >= 0.5 for below, above in pairwise(heights)):
        assert moved == heights, "labels without overlap do not move"


def test_best_cell_of_a_heat_map_is_darkest_and_nan_has_no_shade():
    places = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    labels = {"a": "A", "b": "B"}, {"x": "X", "y": "Y"}
    chart = HeatMap(
        "", ("down", labels[0]), ("across", labels[1]), dict(zip(places, (3.0, 1.0, 2.0, math.nan), strict=True)), True
    )
    assert list(chart.shades().values()) == [0.0, 1.0, 0.5, 0.0]
    assert list(chart._replace(errors=False).shades().values()) == [1.0, 0.0, 0.5, 0.0]
    assert set(chart._replace(values={("a", "x"): 3.0}).shades().values()) == {0.0}


def test_heat_map_shows_existing_cells_only():
    labels = {"a": "A", "b": "B"}
    chart = HeatMap("", ("down", labels), ("across", labels), {("a", "b"): 1.0}, True)
    svg = draw_map(chart).decode()
    assert svg.count("opacity") >= 1
    assert svg == draw_map(chart).decode(), "the same numbers give the same file"
