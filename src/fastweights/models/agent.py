"""An actor and a critic with one memory."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fastweights.core.action_spaces import Actions, Discrete
from fastweights.core.arguments import Count, Size, checked
from fastweights.core.errors import require
from fastweights.layers import LayerKinds, layer_options, make_layer
from fastweights.layers.fake_srwm import NoState
from fastweights.models._policy_head import PolicyHead
from fastweights.models.blocks import Blocks
from fastweights.models.stack import make_stack
from fastweights.registry import VISION_NETS
from fastweights.state import detach

BRIGHTEST = 255


class Agent(nn.Module):
    """[parameters of pi(a_t), V_t] = W h_t + b, h = memory([see(o_t), r_{t-1}, a_{t-1}])

    The last reward is cut to [-1, 1]; neither it nor the last action is told at the first step of an episode, before
    which the memory is reset.

    Source: Irie et al. 2021, Sec. 4.3, and Irie et al. 2022, Sec. 4.3: linear to D, blocks, both heads on the residual
    stream; without a memory or with an LSTM alone, no map in front.

    Args:
        shape: Of an observation.
        actions: Action space; a number n of actions stands for `Discrete(n)`.
        pictures: Whether observations are pictures `(channels, side, side)` of bytes.
        layer: What `make_layer` takes; `options` go to it. None for an agent without a memory.
        d_model: Size of the memory.
        depth: Number of blocks; 0 for the layer alone.
        heads: Memories a layer.
        d_ff: Width of the feed-forward networks of blocks.
        norm: Where LayerNorm stands around the layers, from `fastweights list norms`.
        feed_forward_norm: The same around the feed-forward networks.
        convolution: Width of a causal convolution in front of every layer in a block; 0 for none.
        hidden: Rectified linear units between numbers that are seen and the memory; 0 for none.
        vision: Vision net for pictures, from `fastweights list vision-nets`.
        tell_reward: Whether the last reward is told.
        tell_action: Whether the last action is.
    """

    @checked
    def __init__(
        self,
        shape: Sequence[Size],
        actions: Actions | Size,
        pictures: bool,
        layer: LayerKinds | None = "delta-net",
        d_model: Size = 128,
        depth: Count = 2,
        heads: Size = 4,
        d_ff: Size = 512,
        norm: str = "pre",
        feed_forward_norm: str = "pre",
        convolution: Count = 0,
        hidden: Count = 0,
        vision: str = "impala",
        tell_reward: bool = True,
        tell_action: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        fits = len(shape) == 3 or not pictures
        require(fits, "shape", "[channels, height, width] of pictures", list(shape), "Use pictures=False for numbers.")
        self.actions = Discrete(actions) if isinstance(actions, int) else actions
        self.pictures = pictures
        self.tell_reward, self.tell_action = tell_reward, tell_action
        self.eye, seen = _picture_eye(shape, vision) if pictures else _number_eye(shape, hidden)
        width = seen + tell_reward + self.actions.features * tell_action
        self.reader: nn.Module = nn.Identity()
        self.memory: nn.Module | None = None
        if layer is not None and depth:
            blocks = Blocks(
                layer=layer,
                d_model=d_model,
                depth=depth,
                heads=heads,
                d_ff=d_ff,
                norm=norm,
                feed_forward_norm=feed_forward_norm,
                convolution=convolution,
                options=options,
            )
            self.reader = nn.Linear(width, d_model)
            self.memory = make_stack(blocks)
        elif layer is not None:
            own = {"input_size": width} if "input_size" in layer_options(layer) else {}
            self.reader = nn.Identity() if own or width == d_model else nn.Linear(width, d_model)
            # Several layers are for blocks: make_layer refuses them.
            self.memory = make_layer(layer, d_model, heads, **own, **(options or {}))  # type: ignore[arg-type]
        self.head = PolicyHead(width if layer is None else d_model, self.actions)

    def forward(
        self, seen: Tensor, reward: Tensor, action: Tensor, first: Tensor, state: Any = None, truncate: int = 0
    ) -> tuple[Tensor, Tensor, Any]:
        """Parameters of the policy `[B, T, P]`, values `[B, T]` and the state, from observations and what came before.

        `agent.actions.distribution(parameters)` is the policy. The parameters of `Discrete(n)` are n logits.

        Args:
            seen: `[B, T, *shape]`.
            reward: Of the action before, `[B, T]`.
            action: The one before, `[B, T, *actions.shape]`.
            first: bool `[B, T]`: an episode begins.
            state: The state before the first step.
            truncate: Steps that gradients reach back through the memory; 0 for all.
        """
        x = self.reader(self._told(seen, reward, action, first))
        h, state = self._remember(x, first, state, truncate)
        return *self.head(h), state

    def initial_state(self, batch_size: int) -> Any:
        """The memory's."""
        return NoState() if self.memory is None else self.memory.initial_state(batch_size)  # type: ignore[operator]

    def _told(self, seen: Tensor, reward: Tensor, action: Tensor, first: Tensor) -> Tensor:
        given = seen.flatten(0, 1)
        eyes = self.eye(given / BRIGHTEST if self.pictures else given).unflatten(0, first.shape)
        parts, later = [eyes], (~first).unsqueeze(-1)
        if self.tell_reward:
            parts.append(reward.clamp(-1, 1).unsqueeze(-1) * later)
        if self.tell_action:
            parts.append(self.actions.encode(action) * later)
        return torch.cat(parts, dim=-1)

    def _remember(self, x: Tensor, first: Tensor, state: Any, truncate: int) -> tuple[Tensor, Any]:
        if self.memory is None:
            return x, NoState()
        outputs = []
        span = truncate or x.shape[1]
        for part, begins in zip(x.split(span, 1), first.split(span, 1), strict=True):
            y, state = self.memory(part, None if state is None else detach(state), reset=begins)
            outputs.append(y)
        return torch.cat(outputs, dim=1), state


def _picture_eye(shape: Sequence[int], vision: str) -> tuple[nn.Module, int]:
    channels, side, _ = shape
    net = VISION_NETS.load(vision)(channels, side)
    return net, net.features


def _number_eye(shape: Sequence[int], hidden: Count) -> tuple[nn.Module, int]:
    size = torch.Size(shape).numel()
    net = nn.Sequential(nn.Linear(size, hidden), nn.ReLU()) if hidden else nn.Sequential()
    return nn.Sequential(nn.Flatten(), *net), hidden or size
