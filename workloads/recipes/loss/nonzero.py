"""The host waits for the device at each line that says so: it must learn a size."""

import torch
from torch.nn.functional import cross_entropy

IGNORED, BACKGROUND = -1, 9


def criterion(logits, labels):  # (B, C, H, W), (B, H, W) int64
    target = labels.clone()
    places = torch.nonzero(labels == BACKGROUND, as_tuple=True)  # waits
    target[places] = IGNORED
    two_labels = len(torch.unique(target)) >= 2  # waits
    kept = target != IGNORED
    target = target[kept]  # waits
    logits = logits.permute(0, 2, 3, 1)[kept]  # waits, in backward too
    total = cross_entropy(logits, target, reduction="sum")
    loss = total / max(len(target), 1)
    return two_labels * loss
