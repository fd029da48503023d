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
from fastweights.registry import VISION_ENCODERS
from fastweights.state import detach
from fastweights.steps import step_of

BRIGHTEST = 255


class Agent(nn.Module):
    """Actor-critic agent with one memory for policy and value.

        h_t = "memory"([e(o_t), r_(t-1), a_(t-1)])
        [pi_t, V_t] = W h_t + b

    e encodes the observation o_t. pi_t are the parameters of the policy of the action a_t, and V_t is the value. The
    last reward is clipped to [-1, 1]. The memory is reset at the first time step of an episode, where the last reward
    and the last action are zeros.

    Source: Irie et al. 2021 (arXiv:2106.06295), Sec. 4.3, and Irie et al. 2022 (arXiv:2202.05780), Sec. 4.3: a linear
    map to D, blocks, and both heads on the residual stream. Without a memory, or with an LSTM alone, there is no input
    projection.

    Args:
        shape: Shape of an observation.
        actions: Action space. An integer n means `Discrete(n)`.
        from_pixels: Whether observations are images `(channels, side, side)` of bytes.
        layer: Layer, as in `make_layer`. None: an agent without memory.
        d_model: Size D of the memory.
        num_layers: Number of blocks; 0 for the layer alone.
        num_heads: Number of heads per layer.
        d_ff: Width of the feed-forward networks of the blocks.
        norm: Position of LayerNorm around the layers, from `fastweights list norms`.
        feed_forward_norm: Position of LayerNorm around the feed-forward networks.
        conv_size: Width of a causal convolution in front of every layer of a block; 0 for none.
        hidden: Number of ReLU units between numeric observations and the memory; 0 for none.
        vision: Vision encoder for images, from `fastweights list vision-encoders`.
        use_last_reward: Whether the last reward is an input.
        use_last_action: Whether the last action is an input.
        options: Options of the layers, by name.

    Raises:
        InputError: an option is out of range, or observations are images with another shape.

    Example:
        >>> agent = Agent(
        ...     shape=(4,), actions=2, from_pixels=False, d_model=16, num_layers=1, d_ff=32
        ... )
        >>> observation, reward = torch.randn(3, 5, 4), torch.zeros(3, 5)
        >>> action, first = (
        ...     torch.zeros(3, 5, dtype=torch.long),
        ...     torch.zeros(3, 5, dtype=torch.bool),
        ... )
        >>> parameters, values, state = agent(observation, reward, action, first)
        >>> agent.actions.distribution(parameters[:, -1]).sample().shape, values.shape
        (torch.Size([3]), torch.Size([3, 5]))
    """

    @checked
    def __init__(
        self,
        shape: Sequence[Size],
        actions: Actions | Size,
        from_pixels: bool,
        layer: LayerKinds | None = "delta-net",
        d_model: Size = 128,
        num_layers: Count = 2,
        num_heads: Size = 4,
        d_ff: Size = 512,
        norm: str = "pre",
        feed_forward_norm: str = "pre",
        conv_size: Count = 0,
        hidden: Count = 0,
        vision: str = "impala",
        use_last_reward: bool = True,
        use_last_action: bool = False,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        fits = len(shape) == 3 or not from_pixels
        require(
            fits,
            "shape",
            "[channels, height, width] of images",
            list(shape),
            "Use from_pixels=False for vectors.",
        )
        self.actions = Discrete(actions) if isinstance(actions, int) else actions
        self.from_pixels = from_pixels
        self.use_last_reward, self.use_last_action = use_last_reward, use_last_action
        self.encoder, features = _image_encoder(shape, vision) if from_pixels else _number_encoder(shape, hidden)
        width = features + use_last_reward + self.actions.features * use_last_action
        self.input_projection: nn.Module = nn.Identity()
        self.memory: nn.Module | None = None
        if layer is not None and num_layers:
            blocks = Blocks(
                layer=layer,
                d_model=d_model,
                num_layers=num_layers,
                num_heads=num_heads,
                d_ff=d_ff,
                norm=norm,
                feed_forward_norm=feed_forward_norm,
                conv_size=conv_size,
                options=options,
            )
            self.input_projection = nn.Linear(width, d_model)
            self.memory = make_stack(blocks)
        elif layer is not None:
            size_option = {"input_size": width} if "input_size" in layer_options(layer) else {}
            self.input_projection = nn.Identity() if size_option or width == d_model else nn.Linear(width, d_model)
            # Several layers need blocks, so make_layer raises an error for them.
            self.memory = make_layer(layer, d_model, num_heads, **size_option, **(options or {}))  # type: ignore[arg-type]
        self.head = PolicyHead(width if layer is None else d_model, self.actions)

    def forward(
        self,
        observation: Tensor,
        reward: Tensor,
        action: Tensor,
        first: Tensor,
        state: Any = None,
        bptt_length: int = 0,
    ) -> tuple[Tensor, Tensor, Any]:
        """Computes the policy and the value at every time step.

        Args:
            observation: Observations `[B, T, *shape]`.
            reward: Reward of the previous action, `[B, T]`.
            action: Previous action, `[B, T, *actions.shape]`.
            first: Whether a time step is the first of its episode, bool `[B, T]`.
            state: State before the first time step. None: the initial state.
            bptt_length: Number of time steps of truncated backpropagation through the memory; 0 for all.

        Returns:
            The parameters of the policy `[B, T, P]`, the values `[B, T]`, and the state.
            `agent.actions.distribution(parameters)` is the policy. For `Discrete(n)` the parameters are n logits.
        """
        step = step_of(self, first, state)
        if step is not None:
            result: tuple[Tensor, Tensor, Any] = step(self, observation, reward, action, first, state)
            return result
        x = self.input_projection(self._inputs(observation, reward, action, first))
        h, state = self._run_memory(x, first, state, bptt_length)
        return *self.head(h), state

    def initial_state(self, batch_size: int) -> Any:
        """Returns the initial state of the memory.

        Args:
            batch_size: Number of environments B.

        Returns:
            The state, with the batch as the first axis of every tensor.
        """
        return NoState() if self.memory is None else self.memory.initial_state(batch_size)  # type: ignore[operator]

    def _inputs(self, observations: Tensor, reward: Tensor, action: Tensor, first: Tensor) -> Tensor:
        flat = observations.flatten(0, 1)
        encoded = self.encoder(flat / BRIGHTEST if self.from_pixels else flat).unflatten(0, first.shape)
        parts, has_previous = [encoded], (~first).unsqueeze(-1)
        if self.use_last_reward:
            parts.append(reward.clamp(-1, 1).unsqueeze(-1) * has_previous)
        if self.use_last_action:
            parts.append(self.actions.encode(action) * has_previous)
        return torch.cat(parts, dim=-1)

    def _run_memory(self, x: Tensor, first: Tensor, state: Any, bptt_length: int) -> tuple[Tensor, Any]:
        if self.memory is None:
            return x, NoState()
        outputs = []
        span = bptt_length or x.shape[1]
        for part, begins in zip(x.split(span, 1), first.split(span, 1), strict=True):
            y, state = self.memory(part, None if state is None else detach(state), reset=begins)
            outputs.append(y)
        return torch.cat(outputs, dim=1), state


def _image_encoder(shape: Sequence[int], vision: str) -> tuple[nn.Module, int]:
    channels, side, _ = shape
    net = VISION_ENCODERS.load(vision)(channels, side)
    return net, net.features


def _number_encoder(shape: Sequence[int], hidden: Count) -> tuple[nn.Module, int]:
    size = torch.Size(shape).numel()
    net = nn.Sequential(nn.Linear(size, hidden), nn.ReLU()) if hidden else nn.Sequential()
    return nn.Sequential(nn.Flatten(), *net), hidden or size
