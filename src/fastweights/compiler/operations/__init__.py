"""The lowering rules of operations, by name."""

from collections.abc import Callable
from typing import Any

from fastweights.compiler.operations import elementwise, sums, views
from fastweights.compiler.operations import indexing as places

PLACES = places.OPERATIONS
OPERATIONS: dict[str, Callable[..., Any]] = {
    **elementwise.OPERATIONS,
    **sums.OPERATIONS,
    **views.OPERATIONS,
    **PLACES,
}
OTHERS = "it with arithmetic, products, sums, views and elementwise functions (see docs/tutorials/update-rule.md)"
INSTEAD = {
    **dict.fromkeys(("sort", "topk", "kthvalue", "median"), "amax, or a softmax"),
    **dict.fromkeys(("prod", "cumprod"), "products of slices, or exp of a sum of logs"),
    **dict.fromkeys(("convolution", "avg_pool2d", "max_pool2d_with_indices"), "sums over torch.roll or slices"),
    "linalg_inv_ex": "a product with an inverse that the state keeps",
    "native_dropout": "a mask as one of the inputs",
}
"""The suggested alternative for an operation that does not compile; `OTHERS` is the default."""
