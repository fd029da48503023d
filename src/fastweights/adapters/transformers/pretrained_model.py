"""The base of the models for transformers: a network, its inputs and gradient checkpointing."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fastweights.adapters.transformers.configuration import FastWeightConfig
from fastweights.adapters.transformers.layout import TokenLayout, lay_out
from fastweights.adapters.transformers.packing import Packing
from fastweights.adapters.transformers.state_cache import StateCache
from fastweights.core.errors import require
from fastweights.core.import_path import find_imported, is_address
from fastweights.models import LanguageModel
from fastweights.models._embedding import Embedding

# isort: split
from collections.abc import Mapping

from transformers import PreTrainedModel


class Reading(NamedTuple):
    """Results of a network for a batch.

    Attributes:
        hidden: Input of the last linear map, `[B, T, D]`.
        cache: The state behind the batch; None without `use_cache`.
        hidden_states: Inputs of all blocks and `hidden`, `[B, T, D]` each; None without `output_hidden_states`.
        layout: Positions that hold tokens.
    """

    hidden: Tensor
    cache: StateCache | None
    hidden_states: tuple[Tensor, ...] | None
    layout: TokenLayout


class FastWeightPreTrainedModel(PreTrainedModel):
    """A `LanguageModel` as a model of transformers.

    Masked positions have no influence, wherever they are: the state behind a batch, and the results at all other
    positions, are those of the text without them.
    """

    config_class = FastWeightConfig
    base_model_prefix = "network"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    gradient_checkpointing = False
    _is_stateful = True

    def __init__(self, config: FastWeightConfig) -> None:
        super().__init__(config)
        layers = tuple(map(_known, config.layer)) if isinstance(config.layer, list) else _known(config.layer)
        options = {name: _known(value) for name, value in config.layer_options.items()}
        self.network = LanguageModel(
            config.vocab_size,
            layers,
            config.hidden_size,
            config.num_hidden_layers,
            config.num_attention_heads,
            config.intermediate_size,
            config.dropout,
            config.norm,
            config.conv_size,
            options,
            tie_word_embeddings=config.tie_word_embeddings,
        )

    def read(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        attention_mask: Tensor | None,
        packing: Packing,
        cache: StateCache | None,
        use_cache: bool | None,
        output_hidden_states: bool | None,
    ) -> Reading:
        """Runs the network on a batch; the arguments are those of `forward`.

        Raises:
            InputError: an argument does not fit the batch.
        """
        tokens_or_embeddings = _only(input_ids, inputs_embeds)
        B, T = tokens_or_embeddings.shape[:2]
        layout = lay_out(_token_mask(attention_mask, B, T), packing, B, T)
        run = self.network.hidden if inputs_embeds is None else self.network.hidden_from_embeddings
        state = None if cache is None else cache.state
        with _inputs_of(self.network.blocks) as inputs:
            h, state = run(layout.gather(tokens_or_embeddings), state, layout.reset, layout.lengths)
        hidden = layout.spread(h)
        shown = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        keep = (self.config.use_cache and not self.training) if use_cache is None else use_cache
        after = StateCache(state, T + (0 if cache is None else cache.seen)) if keep else None
        return Reading(hidden, after, (*map(layout.spread, inputs), hidden) if shown else None, layout)

    def get_input_embeddings(self) -> nn.Module:
        """Returns the embedding of the network."""
        return self.network.embedding

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replaces the embedding of the network."""
        self.network.embedding = value

    def init_weights(self) -> None:
        """Ties weights that are shared. The constructors of the modules have initialised the weights already."""
        self.tie_weights(recompute_mapping=False)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialises the parameters and buffers of a module that a checkpoint lacks, and keeps those it contains.

        transformers marks the tensors that it has loaded with `_is_hf_initialized`.
        """
        tensors = dict([*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)])
        loaded = {name: t.clone() for name, t in tensors.items() if getattr(t, "_is_hf_initialized", False)}
        if type(module) is nn.Embedding and all(part is not module for part in self.modules()):
            # transformers has made it, with more tokens than ours.
            Embedding.reset_parameters(module)  # type: ignore[arg-type]
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]
        else:
            missing, kind = sorted(tensors.keys() - loaded.keys()), type(module).__name__
            require(
                not missing, "module", "a module with reset_parameters(), which sets what the checkpoint lacks", kind
            )
        for name, value in loaded.items():
            getattr(module, name).copy_(value)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable[..., Any] = checkpoint,
        every_n_layers: int = 1,
    ) -> None:
        """Lets every n-th block keep only its input in training; the backward pass computes the rest again."""
        self.gradient_checkpointing = enable
        for index, block in enumerate(self.network.blocks):
            block.__dict__.pop("forward", None)
            if enable and index % every_n_layers == 0:
                # The hooks of the block stay outside: they must not run a second time.
                block.forward = partial(_recomputed, gradient_checkpointing_func, block, block.forward)


def _recomputed(
    run: Callable[..., Any], block: nn.Module, forward: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    if not (block.training and torch.is_grad_enabled()):
        return forward(*args, **options)
    return run(partial(forward, **options), *args)


@contextmanager
def _inputs_of(blocks: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Collects what the blocks are called with."""
    inputs: list[Tensor] = []
    hooks = [block.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for block in blocks]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def _known(value: Any) -> Any:
    """A value of a config, which may be untrusted: code that it names runs only if this process has imported it."""
    return find_imported(value) if isinstance(value, str) and is_address(value) else value


def _only(input_ids: Any, inputs_embeds: Any) -> Tensor:
    """Tokens or embeddings. Raises `InputError` unless exactly one is given, with axes for batch and time."""
    both = input_ids is not None and inputs_embeds is not None
    require(not both, "inputs_embeds", "left out with input_ids", "both")
    name, inputs, axes = ("input_ids", input_ids, 2) if inputs_embeds is None else ("inputs_embeds", inputs_embeds, 3)
    fits = isinstance(inputs, Tensor) and inputs.ndim == axes and inputs.shape[1] > 0
    shape = "[B, T] or inputs_embeds given" if axes == 2 else "[B, T, D]"
    require(fits, name, shape, list(inputs.shape) if isinstance(inputs, Tensor) else inputs)
    tensor: Tensor = inputs
    return tensor


def _token_mask(attention_mask: Any, B: int, T: int) -> Tensor | None:
    """Positions that hold tokens, bool `[B, T]`: the end of a mask that may begin with what a cache has read."""
    if attention_mask is None:
        return None
    fits = isinstance(attention_mask, Tensor) and attention_mask.ndim == 2
    fits = fits and len(attention_mask) == B and attention_mask.shape[1] >= T
    shape = list(attention_mask.shape) if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
    require(fits, "attention_mask", f"[B, T] = [{B}, {T}], behind the positions of the cache if there is one", shape)
    return attention_mask[:, -T:].bool()


ONLY = {"output_attentions": False, "output_router_logits": False, "is_causal": True}
"""Arguments of transformers' models that have one possible value here."""


def refuse(arguments: Mapping[str, Any]) -> None:
    """Raises `InputError` for an argument that would have no effect, unless it asks for what the models do anyway."""
    for name, value in arguments.items():
        requirement = f"{ONLY[name]} or left out" if name in ONLY else "left out"
        shown = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        require(value is None or value is ONLY.get(name), name, requirement, shown, "It has no meaning for this model.")
