"""A critic that steps five times, then a generator once: one step of the training."""

import torch
from digits import digits
from ending import say
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784), nn.Sigmoid())
critic = nn.Sequential(nn.Linear(784, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
generator_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
steps = 0
for epoch in range(5):
    for number, (images, _) in enumerate(DataLoader(digits(640), 32, shuffle=True), start=1):
        critic_optimizer.zero_grad()
        fake = generator(torch.randn(len(images), 16)).detach()
        distance = critic(fake).mean() - critic(images.flatten(1)).mean()
        distance.backward()
        critic_optimizer.step()
        for weight in critic.parameters():
            weight.data.clamp_(-0.01, 0.01)
        if number % 5 == 0:
            generator_optimizer.zero_grad()
            loss = -critic(generator(torch.randn(32, 16))).mean()
            loss.backward()
            generator_optimizer.step()
            steps += 1
    print(f"epoch {epoch}: distance {-distance.item():.6f}")
say(steps, generator, critic)
