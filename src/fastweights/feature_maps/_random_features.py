"""Base class of feature maps with random projections."""

from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.docstrings import inherit
from fastweights.core.errors import require


class RandomFeatures(nn.Module):
    """Base class of feature maps with random projections.

        phi(x) = [f(w_1 . x), ..., f(w_m . x), f(-w_1 . x), ..., f(-w_m . x)] / sqrt(2 m)

    The m directions w_i are the columns of `directions` `[size, m]`. A subclass defines f as `activate`; here it is
    exp(w . x - |x|^2 / 2) + least. In training mode every forward pass draws new directions, so that a state that is
    carried between forward passes was written with other directions than it is read with. The last directions are a
    buffer, so that a saved model gives the same results in evaluation mode.

    Args:
        size: Size of the input.
        directions: Number m of directions. None: `size`.

    Raises:
        InputError: `directions` is below 1.
    """

    least = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Completes the docstrings of every feature map."""
        super().__init_subclass__(**kwargs)
        inherit(cls)

    def __init__(self, size: int, directions: int | None = None) -> None:
        super().__init__()
        directions = size if directions is None else directions
        require(directions >= 1, "directions", "at least 1", directions)
        self.output_size = 2 * directions
        self.directions: Tensor
        self.register_buffer("directions", torch.empty(size, directions))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws the first directions."""
        self.directions.copy_(self.draw(*self.directions.shape))

    @torch.no_grad()
    def redraw(self) -> None:
        """Draws new directions."""
        # Not in place, since gradients of earlier steps may need the last ones. Contiguous, as after loading.
        self.directions = self.draw(*self.directions.shape).to(self.directions).contiguous()

    def draw(self, size: int, m: int) -> Tensor:
        """Draws random directions, orthogonal in groups of `size`, each as long as a Gaussian vector.

        Args:
            size: Size of the input.
            m: Number of directions.

        Returns:
            The directions `[size, m]`.
        """
        return orthonormal_columns(size, m) * torch.randn(size, m).norm(dim=0)

    def forward(self, x: Tensor) -> Tensor:
        """Computes features, in training mode with new directions.

        Args:
            x: Input `[..., size]`.

        Returns:
            The features `[..., 2 m]`.
        """
        if self.training:
            self.redraw()
        return self.map_queries(x)

    def map_queries(self, x: Tensor) -> Tensor:
        """Computes features with the last directions, as for queries that follow their keys.

        Args:
            x: Input `[..., size]`.

        Returns:
            The features `[..., 2 m]`.
        """
        w_x = x @ self.directions.to(x.dtype)
        return self.activate(torch.cat([w_x, -w_x], dim=-1), x) / self.output_size**0.5

    def activate(self, w_x: Tensor, x: Tensor) -> Tensor:
        """Applies f to projections.

        Args:
            w_x: Projections of x, `[..., 2 m]`.
            x: Input `[..., size]`.

        Returns:
            The values of f, `[..., 2 m]`.
        """
        return (w_x - x.square().sum(-1, keepdim=True) / 2).exp() + self.least


def orthonormal_columns(size: int, m: int) -> Tensor:
    """Random columns `[size, m]` of length 1, orthogonal in groups of `size`."""
    gaussian = torch.randn(-(-m // size), size, size)
    return torch.linalg.qr(gaussian).Q.transpose(0, 1).flatten(1)[:, :m]
