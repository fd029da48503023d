"""The prototype loss, which moves the features of an image towards those of its class."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fastweights.tasks.kinds.labelled import IGNORE


def prototype_loss(features: Tensor, classes: Tensor) -> Tensor:
    """Mean of -log p(class of t), p(c) = softmax_c(-|f_t - m_c|^2), where m_c is the mean of class c without t.

    Images that are alone in their class are ignored; the loss is 0 if all are.

    Source: Snell et al. 2017, Eqs. 1-2, with every image as a query of the others.

    Args:
        features: f `[B, T, F]`.
        classes: int `[B, T]`, from 0.
    """
    features = features.float()
    member = one_hot(classes).to(features.dtype)  # [B, T, C]
    size = member.sum(1, keepdim=True)
    means = member.mT @ features / size.mT.clamp(min=1)
    distances = features.square().sum(2, keepdim=True) - 2 * features @ means.mT + means.square().sum(2).unsqueeze(1)
    others = size - member
    # The distance of a vector to the mean of n vectors is (n - 1) / n of that to the mean of the others.
    distances = distances * torch.where(member > 0, size / others.clamp(min=1), 1.0).square()
    scores = (-distances).masked_fill(others == 0, -torch.inf)
    alone = (member * (size < 2)).any(2)
    targets = classes.masked_fill(alone, IGNORE)
    total = cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return total / (~alone).sum().clamp(min=1)
