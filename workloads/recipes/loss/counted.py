"""The loss is the same. The host still waits for what the mask selects."""

import torch
from torch.nn.functional import cross_entropy

IGNORED, BACKGROUND = -1, 9


def criterion(logits, labels):  # (B, C, H, W), (B, H, W) int64
    target = torch.where(labels == BACKGROUND, IGNORED, labels)
    ordered = target.flatten().sort().values
    two_labels = (ordered[1:] != ordered[:-1]).any()
    kept = target != IGNORED
    target = target[kept]  # waits
    logits = logits.permute(0, 2, 3, 1)[kept]  # waits, in backward too
    total = cross_entropy(logits, target, reduction="sum")
    loss = total / max(len(target), 1)
    return two_labels * loss
