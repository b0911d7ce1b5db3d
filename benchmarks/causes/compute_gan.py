"""Compute: two convolutional networks against each other, in float32, with an optimizer each."""

from contextlib import suppress
from itertools import count, pairwise

import torch
from cause import setting, until_over
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as distance


def generator(latent: int, channels: int) -> nn.Sequential:
    """Return what makes images (images, 3, 64, 64) of noise (images, latent, 1, 1)."""
    sizes = (8 * channels, 4 * channels, 2 * channels, channels)
    layers: list[nn.Module] = [nn.ConvTranspose2d(latent, sizes[0], 4)]
    for inputs, outputs in zip(sizes, (*sizes[1:], 3), strict=True):
        layers += [nn.BatchNorm2d(inputs), nn.ReLU()]
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)]
    return nn.Sequential(*layers, nn.Tanh())


def discriminator(channels: int) -> nn.Sequential:
    """Return what judges images."""
    sizes = (3, channels, 2 * channels, 4 * channels, 8 * channels)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Conv2d(inputs, outputs, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(sizes[-1], 1, 4), nn.Flatten(0))


def main() -> None:
    """Train."""
    at = setting(__doc__)
    images, latent, channels = at.size((128, 128, 96), (4, 16, 8))
    makes, judges = generator(latent, channels).to(at.device), discriminator(channels).to(at.device)
    of_makes = torch.optim.Adam(makes.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_judges = torch.optim.Adam(judges.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real = torch.rand(images, 3, 64, 64, device=at.device)
    yes, no = torch.ones(images, device=at.device), torch.zeros(images, device=at.device)
    for _ in until_over(at.seconds, count()):
        fake = makes(torch.randn(images, latent, 1, 1, device=at.device))
        of_judges.zero_grad()
        loss = distance(judges(real), yes) + distance(judges(fake.detach()), no)
        loss.backward()  # type: ignore[no-untyped-call]  # in torch
        of_judges.step()
        of_makes.zero_grad()
        distance(judges(fake), yes).backward()  # type: ignore[no-untyped-call]  # in torch
        of_makes.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
