"""A compiled transformer on texts that are sorted by length: each bucket has another shape."""

import random

import torch
import torch._dynamo as dynamo
import torch._inductor.config as inductor
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, BATCH, LONGEST = (256, 16, 256) if ON_GPU else (32, 4, 64)
BUCKET = 20
TOKENS = 1000
inductor.force_disable_caches = True  # a new machine each night
for limit in ("recompile_limit", "accumulated_recompile_limit"):
    setattr(dynamo.config, limit, 10_000)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.out = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.out(x)


def buckets(rng):
    """Some batches of each length, for ever."""
    lengths = list(range(LONGEST // 4, LONGEST))
    rng.shuffle(lengths)
    while True:
        for length in lengths:
            for _ in range(BUCKET):
                yield torch.randint(TOKENS, (BATCH, length if PLANT else LONGEST), device=DEVICE)


def main():
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    compiled = torch.compile(model, dynamic=False, backend="inductor" if ON_GPU else "aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clock = Stopwatch(period=BUCKET)
    for tokens in buckets(random.Random(0)):
        scores = compiled(tokens)
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
