"""Any layer as the memory of an agent of TorchRL: a module for its tensordicts."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_flatten, tree_unflatten

from fastweights.core.errors import InputError
from fastweights.state import named_tensors

try:
    from tensordict import TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from torchrl.data import Unbounded
    from torchrl.envs.transforms import TensorDictPrimer
    from torchrl.modules import recurrent_mode
except ModuleNotFoundError as error:
    remedy = "Try pip install 'fastweights[torchrl]'."
    raise InputError(f"{error.name} must be installed, got no such module. {remedy}") from None

__all__ = ["MemoryModule"]


class MemoryModule(TensorDictModuleBase):
    """Layer as the memory of a TorchRL policy: a module for tensordicts.

        y_t, state_t = "layer"(x_t, state_(t-1))

    A call runs one time step, or under `set_recurrent_mode` one scan over time. The state is in the tensordicts, tensor
    by tensor, with keys that begin with `name`; the next state has the keys `("next", ...)`. `is_init` resets the
    state, inside the scan. The environment needs `InitTracker` and the primer of this module. A state that has begun is
    not reset: value estimators of TorchRL also mark the second step of an episode with `is_init`, to be read with the
    stored state. If a value estimator would run the module under `torch.vmap`, pass `deactivate_vmap=True` to the
    estimator, or `shifted=True` for one scan instead of two.

    Source: Bou et al. 2024 (TorchRL, arXiv:2306.00577), whose `LSTMModule` has the same conventions.

    Args:
        layer: Layer, as `make_layer` returns it.
        in_key: Key of the input x in the tensordict, `[..., D]`, or `[..., T, D]` over time.
        out_key: Key of the output y.
        name: Prefix of the keys of the state. Two memories of a policy need two names.
    """

    def __init__(self, layer: nn.Module, in_key: str, out_key: str, name: str = "memory") -> None:
        super().__init__()
        self.layer = layer
        state = layer.initial_state(1)  # type: ignore[operator]
        _, self.structure = tree_flatten(state)
        self.primed = {f"{name}_{leaf.replace('.', '_')}": tensor[0] for leaf, tensor in named_tensors(state).items()}
        self.begun = f"{name}_begun"
        self.primed[self.begun] = torch.zeros(1, dtype=torch.bool)
        self.in_keys = [in_key, *self.primed, "is_init"]
        self.out_keys = [out_key, *(("next", key) for key in self.primed)]

    def make_tensordict_primer(self) -> TensorDictPrimer:
        """Returns the transform that adds the state to an environment. Append it to the environment.

        Returns:
            The transform.
        """
        specs = {key: Unbounded(shape=leaf.shape, dtype=leaf.dtype) for key, leaf in self.primed.items()}
        return TensorDictPrimer(specs, expand_specs=True)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Runs the layer on a tensordict and writes the output and, in single steps, the next state to it.

        Args:
            tensordict: Tensordict with the input, the state and `is_init`.

        Returns:
            The same tensordict.

        Raises:
            InputError: the tensordict lacks an entry that the environment should have added.
        """
        missing = [key for key in self.in_keys if key not in tensordict.keys()]  # noqa: SIM118 (not a dict)
        if missing:
            remedy = "Append InitTracker() and this module's make_tensordict_primer() to the environment."
            raise InputError(f"tensordict must be a tensordict with {', '.join(missing)}, got one without. {remedy}")
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
