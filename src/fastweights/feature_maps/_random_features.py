"""What feature maps with random projections share."""

import torch
from torch import Tensor, nn

from fastweights.core.errors import require


class RandomFeatures(nn.Module):
    """[f(w.x), f(-w.x)] / sqrt(2 m) for m random directions w, the columns of `directions` `[size, m]`.

    A map defines f as `activate`; here it is exp(w.x - |x|^2 / 2) + least. The directions are redrawn in every forward
    pass in training mode: a state that is carried from one to the next was written under others than it is read under.
    The last ones are a buffer, so that a saved model evaluates the same.
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
        # Not in place: gradients of earlier steps may need the last ones. Contiguous, as they are once loaded.
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
        return self.activate(torch.cat([w_x, -w_x], dim=-1), x) / self.output_size**0.5

    def activate(self, w_x: Tensor, x: Tensor) -> Tensor:
        """f of the projections `[..., 2 m]` of x `[..., size]`."""
        return (w_x - x.square().sum(-1, keepdim=True) / 2).exp() + self.least


def orthonormal_columns(size: int, m: int) -> Tensor:
    """Random columns `[size, m]` of length 1, orthogonal in groups of `size`."""
    gaussian = torch.randn(-(-m // size), size, size)
    return torch.linalg.qr(gaussian).Q.transpose(0, 1).flatten(1)[:, :m]
