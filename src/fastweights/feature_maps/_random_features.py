"""Base class of the forms of FAVOR+: exponentials of random projections."""

import torch
from torch import Tensor, nn

from fastweights.core.errors import require


class RandomFeatures(nn.Module):
    """(exp(+-w.x - |x|^2 / 2) + least) / sqrt(2 m) for m random directions w, the columns of `directions` `[size, m]`.

    They are redrawn in every forward pass in training mode, so a state that is carried over was written with other
    directions. The last ones are a buffer, so that a saved model evaluates the same.
    """

    least = 0.0

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
        """Directions `[size, m]`, orthogonal in groups of `size`, each as long as a Gaussian vector."""
        return orthonormal_columns(size, m) * torch.randn(size, m).norm(dim=0)

    def forward(self, x: Tensor) -> Tensor:
        """`[..., size]` -> `[..., 2 m]`."""
        if self.training:
            self.redraw()
        return self.again(x)

    def again(self, x: Tensor) -> Tensor:
        """The same with the directions that were drawn last, as queries need it that come after their keys."""
        w_x = x @ self.directions.to(x.dtype)
        half_square = x.square().sum(-1, keepdim=True) / 2
        features = torch.cat([w_x - half_square, -w_x - half_square], dim=-1).exp() + self.least
        return features / self.output_size**0.5


def orthonormal_columns(size: int, m: int) -> Tensor:
    """Random columns `[size, m]` of length 1, orthogonal in groups of `size`."""
    gaussian = torch.randn(-(-m // size), size, size)
    return torch.linalg.qr(gaussian).Q.transpose(0, 1).flatten(1)[:, :m]
