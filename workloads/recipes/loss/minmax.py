"""The loss is the same but for the order in which floats are added. The host never waits, and
nothing is sorted."""

import torch
from torch.nn.functional import cross_entropy

IGNORED, BACKGROUND = -1, 9


def criterion(logits, labels):  # (B, C, H, W), (B, H, W) int64
    target = torch.where(labels == BACKGROUND, IGNORED, labels)
    least, greatest = torch.aminmax(target)
    two_labels = least != greatest
    total = cross_entropy(
        logits,
        target,
        ignore_index=IGNORED,
        reduction="sum",
    )
    loss = total / (target != IGNORED).sum().clamp(min=1)
    return two_labels * loss
