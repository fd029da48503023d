"""The page on scale is what its script says, and the script counts what is there."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def scale(benchmark_script):
    return benchmark_script("scale")


def test_the_page_is_what_the_script_says(scale):
    from page import found

    page = found(ROOT / "docs" / "scale.md", "scale")
    assert page.splitlines() == scale.lines(scale.Machine()), "run benchmarks/scale.py --into docs/scale.md"


@pytest.mark.parametrize("sizes", [{}, {"batch": 16}, {"d": 512}])
def test_what_a_block_keeps_is_in_proportion_to_its_width_and_tokens(scale, sizes):
    assert scale.kept(**sizes) == pytest.approx(scale.KEPT, rel=0.1)


def test_weights_are_those_of_the_blocks_and_around_them(scale):
    model = scale.model()
    around = scale.VOCABULARY * scale.D + scale.VOCABULARY + 2 * scale.D
    assert model.parameters == scale.DEPTH * model.block + around
    assert model.state == scale.HEADS * (scale.D // scale.HEADS) ** 2
    assert scale.weights(model, 1) == 16 * model.parameters
    assert torch.get_default_dtype() == torch.float32
