"""WikiText-103: a hundred million words of Wikipedia."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fastweights.tasks.data_sets.wikitext_103 import FILES
from fastweights.tasks.sources.data_set import Fetched
from fastweights.tasks.sources.wikitext import WikiText


@dataclass(frozen=True)
class Wikitext103(WikiText):
    """Language modelling of Wikipedia articles (WikiText-103).

    Input -> target: `w_1, ..., w_t -> w_(t+1)`, the next word.

    An interpolated Kneser-Ney model of order 5 is the baseline, fitted on the words for training.

    Files: `wikitext-103/wikitext-103-v1.zip`, or the three files in it (CC BY-SA 3.0): about 103.2 million words for
    training, 217,646 for validation and 245,569 for the test, ends of lines counted, of 267,735 different ones.

    Source: Merity, Xiong, Bradbury and Socher 2017; Schlag et al. 2021, Sec. 6.3; Irie et al. 2021, Sec. 4.1.
    """

    files: ClassVar[Mapping[str, Fetched]] = FILES
