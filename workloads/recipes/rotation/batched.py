"""The same bits, without waiting. Let the angles be float64, as the host's are."""

import torch
from torch.nn.functional import grid_sample


def rotate(images, angles):  # (B, 3, S, S), (B,) degrees on the device
    batch, side = len(images), images.shape[-1]
    cos, sin = angles.deg2rad().cos(), angles.deg2rad().sin()
    to_input = torch.stack([cos, sin, -sin, cos], dim=1).float()
    to_input = to_input.view(batch, 2, 2) / (0.5 * side)
    axis = torch.arange(side, device=images.device) - (side - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    pixels = torch.stack([x, y], dim=-1).view(1, -1, 2)
    grid = pixels.expand(batch, -1, -1).bmm(to_input)
    grid = grid.view(batch, side, side, 2)
    return grid_sample(images, grid, "nearest", align_corners=False)
