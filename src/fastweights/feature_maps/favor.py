"""FAVOR+: random features of the softmax kernel."""

import torch
from torch import Tensor, nn

from fastweights.errors import require


class Favor(nn.Module):
    """phi(x) = exp(+-w.x - |x|^2 / 2) / sqrt(2 m) for m random directions w: on average phi(q).phi(k) = exp(q.k).

    The directions are orthogonal in groups of `size`, each as long as a Gaussian vector. They are redrawn in every
    forward pass in training mode. The last ones are a buffer, so that a saved model evaluates the same.

    Source: Choromanski et al. 2021, Lemma 1 (hyperbolic features) and Sec. 3.3; Schlag et al. 2021, Eqs. 31-32, as in
    the code of their retrieval tasks (which draws anew in evaluation, too).
    """

    least = 0.0
    """What is added to every exponential."""

    def __init__(self, size: int, directions: int | None = None) -> None:
        super().__init__()
        directions = size if directions is None else directions
        require(directions >= 1, "directions", "at least 1", directions)
        self.size = size
        self.output_size = 2 * directions
        self.directions: Tensor
        self.register_buffer("directions", torch.empty(size, directions))
        self.redraw()

    @torch.no_grad()
    def redraw(self) -> None:
        """Draws new directions."""
        size, m = self.directions.shape
        lengths = torch.randn(size, m, device=self.directions.device).norm(dim=0)
        self.directions.copy_(orthonormal_columns(self.directions) * lengths)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.redraw()
        w_x = x @ self.directions.to(x.dtype)
        half_square = x.square().sum(-1, keepdim=True) / 2
        features = torch.cat([w_x - half_square, -w_x - half_square], dim=-1).exp() + self.least
        return features / self.output_size**0.5


def orthonormal_columns(like: Tensor) -> Tensor:
    """Random columns of length 1 in the shape of `like`, `[size, m]`, orthogonal in groups of `size`."""
    size, m = like.shape
    gaussian = torch.randn(-(-m // size), size, size, device=like.device)
    return torch.linalg.qr(gaussian).Q.transpose(0, 1).flatten(1)[:, :m]
