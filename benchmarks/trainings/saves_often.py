"""A language model that is saved in full every 25 steps, and its file synchronised to the disk."""

import os
import tempfile

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WORDS, WIDTH, LAYERS, BATCH, LENGTH = (16_000, 384, 4, 16, 128) if ON_GPU else (500, 32, 1, 4, 16)
EVERY = 25


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 6 if ON_GPU else 4, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.layers(self.words(words)))


def save(model, optimizer, step, folder):
    path = os.path.join(folder, "last.pt")
    with open(f"{path}.new", "wb") as file:
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file
        )
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def main():
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=ON_GPU)
    text = torch.randint(WORDS, (BATCH, LENGTH + 1), device=DEVICE)
    clock = Stopwatch(period=EVERY)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while clock.runs:
            with torch.autocast(DEVICE.type, torch.bfloat16):
                scores = model(text[:, :-1])
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if PLANT and step % EVERY == 0:
                save(model, optimizer, step, folder)
            clock.step()


if __name__ == "__main__":
    main()
