"""A discriminator and a generator, an optimizer each, three backward passes a step."""

import torch
from digits import digits
from ending import say
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.utils.data import DataLoader

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784), nn.Sigmoid())
critic = nn.Sequential(nn.Linear(784, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
steps = 0
for epoch in range(2):
    for images, _ in DataLoader(digits(), batch_size=32, shuffle=True):
        real, fake = torch.ones(len(images), 1), torch.zeros(len(images), 1)
        critic.zero_grad()
        real_loss = bce(critic(images.flatten(1)), real)
        real_loss.backward()
        pictures = generator(torch.randn(len(images), 16))
        fake_loss = bce(critic(pictures.detach()), fake)
        fake_loss.backward()
        critic_optimizer.step()
        generator.zero_grad()
        loss = bce(critic(pictures), real)
        loss.backward()
        generator_optimizer.step()
        steps += 1
    print(f"epoch {epoch}: critic {(real_loss + fake_loss).item():.4f} generator {loss.item():.4f}")
say(steps, generator, critic)
