"""Names that other libraries give to arguments, and the names of these arguments here."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from fastweights.core.errors import InputError

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "d_model": ("hidden_size", "embed_dim", "embedding_dim", "hidden_dim", "model_dim", "dim", "n_embd", "width"),
    "num_heads": ("heads", "nhead", "n_head", "n_heads", "num_attention_heads"),
    "num_layers": ("depth", "layers", "n_layer", "n_layers", "num_hidden_layers", "num_blocks"),
    "vocab_size": ("vocabulary", "vocab", "ntoken", "n_tokens", "num_tokens", "num_embeddings"),
    "d_ff": ("dim_feedforward", "intermediate_size", "ffn_dim", "n_inner"),
    "key_size": ("head_dim", "head_k_dim", "d_k", "d_state", "state_size"),
    "value_size": ("head_v_dim", "d_v"),
    "conv_size": ("convolution", "d_conv", "conv_kernel", "use_short_conv"),
    "qk_norm": ("normaliser", "normalizer", "use_qk_l2norm_in_kernel"),
    "rate_activation": ("squashing", "beta_activation", "allow_neg_eigval"),
    "feature_map": ("qk_activation", "kernel"),
    "initial_state": ("initial", "learn_initial_state"),
    "window_size": ("window", "sliding_window", "attention_window"),
    "use_rope": ("rope", "rotary", "rotates"),
    "lengths": ("attention_mask", "mask", "key_padding_mask", "src_key_padding_mask", "padding_mask", "seq_lens"),
    "state": ("hidden_state", "hidden", "hx", "h_0", "past_key_values", "cache", "cache_params", "initial_state"),
    "reset": ("cu_seqlens", "seq_idx", "done", "first", "is_init"),
    "max_new_tokens": ("length", "max_length", "max_tokens"),
    "eos_token_id": ("end", "eos"),
    "num_beams": ("beam", "beams", "beam_size", "beam_width"),
    "length_penalty": ("penalty",),
    "tie_word_embeddings": ("tied", "tie_weights", "weight_tying"),
    "from_pixels": ("pictures", "is_image", "image_observations"),
    "use_last_reward": ("tell_reward", "prev_reward", "last_reward"),
    "use_last_action": ("tell_action", "prev_action", "last_action"),
    "observation": ("obs", "observations", "seen"),
    "rollout_length": ("unroll_length", "unroll", "n_steps", "rollout_fragment_length"),
    "bptt_length": ("truncate", "tbptt", "chunk_length"),
    "targets": ("labels", "target"),
    "tokens": ("input_ids", "idx", "x", "input", "inputs"),
    "x": ("input", "inputs", "hidden_states", "input_ids"),
}
"""Names of an argument elsewhere, by its name here."""


def name_here(name: str, accepted: Iterable[str]) -> str | None:
    """The name that an argument of another library has among the accepted ones; None if it has none.

    >>> name_here("attention_mask", ["x", "lengths"])
    'lengths'
    """
    return next((here for here in accepted if name in OTHER_NAMES.get(here, ())), None)


def unexpected(name: str, accepted: Sequence[str], owner: str) -> InputError:
    """The error for an argument that a function or a layer does not have, to be raised by the caller.

    It names the right argument where the name is known from another library, or is misspelt.

    Args:
        name: The argument.
        accepted: The arguments that exist.
        owner: What was called, such as the name of a layer.

    >>> raise unexpected("nhead", ["d_model", "num_heads"], "DeltaNet")
    Traceback (most recent call last):
        ...
    fastweights.core.errors.InputError: DeltaNet has no argument 'nhead'. Use num_heads.
    """
    right = _nearest(name, accepted)
    remedy = f"Use {right}." if right else f"It has {', '.join(accepted)}." if accepted else ""
    return InputError(f"{owner} has no argument {name!r}. {remedy}".rstrip())


def unexpected_flag(flag: str, accepted: Iterable[str], command: str) -> InputError:
    """The error for a flag that a command does not have, to be raised by the caller.

    It names the right flag where the name is known from another library, is misspelt, or has underscores.

    Args:
        flag: The flag, such as `--num_heads`.
        accepted: The flags that exist.
        command: The command.

    >>> raise unexpected_flag("--heads", ["--d-model", "--num-heads"], "train char-lm")
    Traceback (most recent call last):
        ...
    fastweights.core.errors.InputError: train char-lm has no flag '--heads'. Use --num-heads.
    """
    flags = {_argument_of(name): name for name in accepted}
    right = flags.get(_argument_of(flag)) or flags.get(_nearest(_argument_of(flag), list(flags)))
    return InputError(
        f"{command} has no flag {flag!r}. {f'Use {right}.' if right else f'See fastweights {command} --help.'}"
    )


def _argument_of(flag: str) -> str:
    """The argument of a flag: `num_heads` for `--num-heads`."""
    return flag.removeprefix("--").replace("-", "_")


def _nearest(name: str, accepted: Sequence[str]) -> str:
    """The argument that a wrong name stands for; empty if none is near."""
    close = get_close_matches(name, accepted, n=1, cutoff=0.7)
    return name_here(name, accepted) or (close[0] if close else "")
