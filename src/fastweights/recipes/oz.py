"""A character language model on The Wonderful Wizard of Oz."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fastweights.errors import InputError, require
from fastweights.training.settings import LanguageModelling, require_numbers

# The flags must be known before torch is imported, so that --help answers at once: methods import what they need.
if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

    from fastweights.tasks._characters import Characters
    from fastweights.training.run import Run

ORDERS = range(1, 6)
WIDEST, DEEPEST = 1 << 20, 1000
"""What a model may be asked for; whether it fits into memory is seen when it is known."""


@dataclass(frozen=True, kw_only=True)
class Oz(LanguageModelling):
    """A character model over any layer by name, beside Kneser-Ney baselines: the library's main job.

    Source: the text is L. Frank Baum's book of 1900, read as by Gregor 2020.

    Args:
        text: A UTF-8 text file to learn instead of the book.
        characters: Of the text, from its beginning; 0 for all.
        layer: A name from "fastweights list layers", or your own: MODULE:NAME or PATH.py:NAME. Several with commas
            between them take turns over the blocks: "delta-net,softmax-attention".
        feature_map: A name from "fastweights list feature-maps"; the layer's own if null.
        normaliser: Of keys and queries: "l2", "sum" or "none"; null for "l2" where the layer has keys.
        convolution: Width of the causal convolution in front of every layer; 0 for none.
        d_model: Size of the representation.
        depth: Number of blocks.
        heads: Memories a layer.
        d_ff: Width of the feed-forward networks.
        dropout: Probability of dropping a unit.
        norm: LayerNorm before ("pre") or after ("post") every layer.
        sample: Characters to generate at the end.
    """

    text: str | None = None
    characters: int = 0
    layer: str = "delta-net"
    feature_map: str | None = None
    normaliser: str | None = None
    convolution: int = 4
    d_model: int = 96
    depth: int = 3
    heads: int = 6
    d_ff: int = 384
    dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    sample: int = 400

    steps: int = 1500
    batch_size: int = 4
    window: int = 256
    learning_rate: float = 4e-3
    warmup: int = 50
    weight_decay: float = 0.01
    clip: float = 1.0
    evaluate_every: int = 250
    patience: int = 0
    seed: int = 1
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["32-true", "bf16-mixed"] = "32-true"

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "cpu": {},
        "smoke": {
            **{"d_model": 32, "depth": 2, "heads": 2, "d_ff": 64, "steps": 20, "evaluate_every": 10, "window": 64},
            **{"characters": 20000, "sample": 40},
        },
        "long": {"steps": 12000, "patience": 8, "dropout": 0.2},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, ("d_model", "heads", "d_ff"), 1, WIDEST)
        require_numbers(self, ("depth",), 1, DEEPEST)
        require_numbers(self, ("convolution",), 0, WIDEST)
        require(self.convolution != 1, "convolution", "0 or at least 2", self.convolution)
        require(0 <= self.dropout < 1, "dropout", "from 0 to below 1", self.dropout)
        require_numbers(self, ("characters", "sample"), 0)

    def read_text(self) -> "Characters":
        """The task."""
        from fastweights.tasks._characters import OZ, Characters

        text = Characters.read(OZ if self.text is None else self.text)
        return Characters(text.text[: self.characters], text.vocabulary) if self.characters else text

    def build(self, vocabulary: int) -> "nn.Module":
        """The model, freshly initialised from the seed."""
        import torch

        from fastweights.layers import layer_options
        from fastweights.models.language_model import LanguageModel

        options = {"feature_map": self.feature_map, "normaliser": self.normaliser}
        if self.normaliser is None and "normaliser" in layer_options(self.layer):
            options["normaliser"] = "l2"
        options = {name: value for name, value in options.items() if value is not None}
        torch.manual_seed(self.seed)
        return LanguageModel(
            vocabulary,
            self.layer,
            self.d_model,
            self.depth,
            self.heads,
            self.d_ff,
            self.dropout,
            self.norm,
            self.convolution,
            options,
        )

    def train(self, run: "Run", resume: bool, console: "Console") -> None:
        """Begins the run or goes on with it, then evaluates it."""
        from fastweights.tasks._characters import Streams
        from fastweights.training.language_modelling import train
        from fastweights.training.loop import build_within_memory, make_fabric

        text = self.read_text()
        model = build_within_memory(lambda: self.build(len(text.vocabulary)))
        streams = Streams(text.training, self.batch_size, self.window)
        fabric = make_fabric(self)
        if resume:
            _require_same_text(run, text)
        else:
            run.begin("oz", asdict(self), {"vocabulary": text.vocabulary, "sha256": text.sha256})
        size = sum(p.numel() for p in model.parameters())
        console.print(f"{self.layer}, {size:,} parameters, {len(text):,} characters, run folder {run.path}")
        train(fabric, model, streams, text.validation, self, run, console)
        self.evaluate(run, console)

    def evaluate(self, run: "Run", console: "Console") -> None:
        """Held-out bits a character beside Kneser-Ney baselines fitted on all before, a sample, a learning curve."""
        from fastweights.report.learning_curve import draw_learning_curve
        from fastweights.tasks._kneser_ney import KneserNey
        from fastweights.training.language_modelling import bits_per_token
        from fastweights.training.loop import best_model, evaluations_until, last_checkpoint

        text = self.read_text()
        _require_same_text(run, text)
        metrics = run.metrics_at(evaluations_until(last_checkpoint(run)))
        model = best_model(run, lambda: self.build(len(text.vocabulary)))
        fitted, held_out = text.before_held_out.numpy(), text.held_out.numpy()
        size = len(text.vocabulary)
        orders = [n for n in ORDERS if n <= KneserNey.longest(size)]
        bits = {f"Kneser-Ney, order {n}": KneserNey(fitted, size, n).bits(held_out) for n in orders}
        picture = run.path / "learning_curve.png"
        named = {f"{name}: {value:.2f}\n(held-out text)": value for name, value in bits.items()}
        draw_learning_curve(picture, metrics, named)
        mine = bits_per_token(model, text.held_out)
        run.write_result({"held_out_bits": mine, "baselines": bits})
        _show(console, self.layer, mine, bits)
        prompt = text.decode(text.before_held_out[-200:])
        tokens = model.generate(text.encode(prompt)[None], self.sample, temperature=0.8, seed=1)  # type: ignore[operator]
        sample = text.decode(tokens[0])
        console.print(f"\nA sample, after {prompt[-60:]!r}:\n\n{sample}", markup=False, highlight=False)
        console.print(f"\nThe run lies in {run.path}, its learning curve in {picture}.")

    def load(self, run: "Run") -> "tuple[nn.Module, Characters]":
        """The trained model, and its characters. The text itself need not be there."""
        from fastweights.tasks._characters import Characters
        from fastweights.training.loop import best_model

        vocabulary = run.config()["task"].get("vocabulary")
        require(isinstance(vocabulary, str) and vocabulary != "", "vocabulary", f"characters in {run.path}", "none")
        characters = Characters("", vocabulary)
        return best_model(run, lambda: self.build(len(vocabulary))), characters


def _require_same_text(run: "Run", text: "Characters") -> None:
    if run.config()["task"].get("sha256") != text.sha256:
        raise InputError(f"text must be the one that {run.path} was begun with, got another. Restore the file.")


def _show(console: "Console", layer: str, mine: float, baselines: dict[str, float]) -> None:
    """A table of held-out bits, best last, and which baseline is beaten."""
    from rich.table import Table

    table = Table("", "bits a character", title="Held-out text", title_justify="left")
    for name, bits in sorted({**baselines, layer: mine}.items(), key=lambda row: -row[1]):
        table.add_row(name, f"{bits:.3f}", style="bold" if name == layer else "")
    console.print(table)
    beaten = [name for name, bits in baselines.items() if mine < bits]
    console.print(f"{layer} is better than {beaten[-1] if beaten else 'none of the baselines'}.", highlight=False)
