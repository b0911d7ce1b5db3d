"""Batches cut from a tensor, the next one before the backward pass, the norm clipped."""

import torch
from ending import say
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
text = torch.randint(64, (20_000,), generator=torch.manual_seed(0))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 96)
        self.layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.1, batch_first=True)
        self.head = nn.Linear(96, 64)

    def forward(self, tokens, targets):
        logits = self.head(self.layer(self.embed(tokens))).flatten(0, 1)
        return cross_entropy(logits, targets.flatten())


def get_batch():
    starts = torch.randint(0, len(text) - 33, (16,)).tolist()
    return (torch.stack([text[s + shift : s + shift + 32] for s in starts]) for shift in (0, 1))


model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens, targets = get_batch()
for step in range(30):
    loss = model(tokens, targets)
    tokens, targets = get_batch()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {step}: loss {loss.item():.4f}")
say(30, model)
