"""Any layer as the memory of an agent of TorchRL: a module for its tensordicts."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.core.errors import InputError
from fastweights.state import named

try:
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from torchrl.data import Unbounded
    from torchrl.envs.transforms import TensorDictPrimer
    from torchrl.modules import recurrent_mode
except ModuleNotFoundError as error:
    remedy = "Try pip install 'fastweights[torchrl]'."
    raise InputError(f"{error.name} must be installed, got no such module. {remedy}") from None


class MemoryModule(TensorDictModuleBase):
    """y_t, state_t = layer(x_t, state_{t-1}), a step a call, or one scan over time under `set_recurrent_mode`.

    The state goes through the tensordicts leaf by leaf, `("next", ...)` to the next step. `is_init` resets it, inside
    the scan. A state that has `begun` is not reset: TorchRL's estimators of values mark with `is_init`, too, what
    follows the first step of an episode, to be read from the state that is stored with it.

    In the environment it needs `InitTracker`, and the primer that this module makes. Where a value estimator would run
    it under `torch.vmap`, give that `deactivate_vmap=True`, or `shifted=True` for one scan instead of two.

    Args:
        layer: Any layer, as `make_layer` makes it.
        in_key: Of x `[..., D]` in the tensordict, `[..., T, D]` over time.
        out_key: Of y.
        name: What the keys of its state begin with; two memories of a policy need two.

    Source: Bou et al. 2024 (TorchRL), whose `LSTMModule` has the same conventions.
    """

    def __init__(self, layer: nn.Module, in_key: str, out_key: str, name: str = "memory") -> None:
        super().__init__()
        self.layer = layer
        state = layer.initial_state(1)  # type: ignore[operator]
        _, self.structure = tree_flatten(state)
        self.primed = {f"{name}_{leaf.replace('.', '_')}": tensor[0] for leaf, tensor in named(state).items()}
        self.begun = f"{name}_begun"
        self.primed[self.begun] = torch.zeros(1, dtype=torch.bool)
        self.in_keys = [in_key, *self.primed, "is_init"]
        self.out_keys = [out_key, *(("next", key) for key in self.primed)]

    def make_tensordict_primer(self) -> TensorDictPrimer:
        """Returns the transform that adds the state to an environment; append it to the environment."""
        specs = {key: Unbounded(shape=leaf.shape, dtype=leaf.dtype) for key, leaf in self.primed.items()}
        return TensorDictPrimer(specs, expand_specs=True)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Writes y, and after a step the state.

        Raises:
            InputError: The tensordict lacks what the environment should have put there.
        """
        missing = [key for key in self.in_keys if key not in tensordict.keys()]  # noqa: SIM118 (not a dict)
        if missing:
            remedy = "Append InitTracker() and this module's make_tensordict_primer() to the environment."
            raise InputError(f"tensordict must be one with {', '.join(missing)}, got one without. {remedy}")
        over_time = recurrent_mode()
        y, state = self._run(tensordict.select(*self.in_keys).reshape(-1, tensordict.shape[-1] if over_time else 1))
        tensordict.set(self.out_keys[0], y.reshape(*tensordict.shape, -1))
        if not over_time:
            leaves = [*tree_flatten(state)[0], torch.ones(len(y), 1, dtype=torch.bool, device=y.device)]
            for key, leaf in zip(self.out_keys[1:], leaves, strict=True):
                tensordict.set(key, leaf.reshape(*tensordict.shape, *leaf.shape[1:]))
        return tensordict

    def _run(self, rows: TensorDictBase) -> tuple[Tensor, Any]:
        """Runs the layer over `[B, T]`, from the states before the first steps and before marked steps."""
        x, *leaves, begun, first = (rows.get(key) for key in self.in_keys)
        begun, first = begun[..., 0], first[..., 0]
        reset, begins = first & ~begun, first & begun
        begins[:, 0] = True
        if not bool(begins[:, 1:].any()):
            return self.layer(x, self._state([leaf[:, 0] for leaf in leaves]), reset)
        indices = begins.flatten().nonzero()[:, 0]
        lengths = torch.diff(indices, append=indices.new_tensor([begins.numel()]))
        x, reset = (pad_sequence(part.flatten(0, 1).split(lengths.tolist()), True) for part in (x, reset))
        state = self._state([leaf.flatten(0, 1)[indices] for leaf in leaves])
        y, after = self.layer(x, state, reset, lengths)
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return y[inside].unflatten(0, begins.shape), after

    def _state(self, leaves: list[Tensor]) -> Any:
        return tree_unflatten(leaves, self.structure)
