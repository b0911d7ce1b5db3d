"""A small GPT whose attention writes all scores to memory."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, HEADS, LAYERS, BATCH, LENGTH = (512, 8, 3, 4, 1536) if ON_GPU else (32, 2, 1, 2, 32)
TOKENS = 256


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        self.register_buffer("later", later)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.into(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if PLANT:
            scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5
            scores = scores.masked_fill(self.later, float("-inf"))
            mixed = scores.softmax(-1) @ v
        else:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


def main():
    torch.manual_seed(0)
    layers = (Layer() for _ in range(LAYERS))
    model = nn.Sequential(nn.Embedding(TOKENS, WIDTH), *layers, nn.Linear(WIDTH, TOKENS)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(TOKENS, (BATCH, LENGTH), device=DEVICE)
    clock = Stopwatch()
    while clock.runs:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            scores = model(tokens)
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
