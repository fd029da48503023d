"""FAVOR+: random features of the softmax kernel."""

import torch
from torch import Tensor, nn

from fastweights.errors import require

EPS = 1e-4
"""Added to every feature, as in the papers' language-model code: no key has only zero features."""


class Favor(nn.Module):
    """phi(x) = exp(+-w.x - |x|^2 / 2) / sqrt(2 m) for m random directions w: on average phi(q).phi(k) = exp(q.k).

    The directions are redrawn in every forward pass in training mode. The last ones are a buffer, so that a saved
    model evaluates the same.

    Source: Choromanski et al. 2021, Lemma 1 (hyperbolic features) and Sec. 3.3; Schlag et al. 2021, Eqs. 31-32.
    """

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
        """Draws directions: orthogonal in groups of `size`, each as long as a Gaussian vector."""
        m = self.directions.shape[1]
        gaussian = torch.randn(-(-m // self.size), self.size, self.size, device=self.directions.device)
        orthogonal = torch.linalg.qr(gaussian).Q.transpose(0, 1).flatten(1)[:, :m]
        lengths = torch.randn(self.size, m, device=self.directions.device).norm(dim=0)
        self.directions.copy_(orthogonal * lengths)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.redraw()
        w_x = x @ self.directions.to(x.dtype)
        half_square = x.square().sum(-1, keepdim=True) / 2
        features = torch.cat([w_x - half_square, -w_x - half_square], dim=-1).exp() + EPS
        return features / self.output_size**0.5
