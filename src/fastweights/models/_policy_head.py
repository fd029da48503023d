"""The output layer of an agent: a policy and a value."""

import torch
from torch import Tensor, nn

from fastweights.core.action_spaces import Actions


class PolicyHead(nn.Module):
    """[outputs, value] = W h + b. The parameters of the policy are the outputs and learned numbers independent of h.

    Args:
        size: Size of h.
        actions: Action space.
    """

    learned: nn.Parameter | None

    def __init__(self, size: int, actions: Actions) -> None:
        super().__init__()
        self.linear = nn.Linear(size, actions.outputs + 1)
        learned = nn.Parameter(torch.empty(actions.learned)) if actions.learned else None
        self.register_parameter("learned", learned)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the log standard deviations to 0. The linear map initialises itself."""
        if self.learned is not None:
            nn.init.zeros_(self.learned)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the parameters of the policy `[B, T, P]` and values `[B, T]` for h `[B, T, size]`."""
        joint = self.linear(h)
        outputs, values = joint[..., :-1], joint[..., -1]
        if self.learned is None:
            return outputs, values
        learned = self.learned.to(outputs.dtype).expand(*values.shape, -1)
        return torch.cat([outputs, learned], dim=-1), values
