"""A Sphinx extension that renders formulas as MathML, which browsers show without a script or a network."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(str(tex2mathml(node.astext())))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: Any) -> None:
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode
