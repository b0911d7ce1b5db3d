"""A small set of spectra in short epochs; each starts its loader's workers anew."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, BATCH = 256, 64
WORKERS = 6 if ON_GPU else 2


class Spectra(Dataset):
    def __init__(self):
        self.spectra = torch.rand(ROWS, 256)

    def __len__(self):
        return ROWS

    def __getitem__(self, at):
        spectrum = self.spectra[at].roll(int(torch.randint(8, ())))
        return spectrum, spectrum[:32].sum() > 16


def loader():
    return DataLoader(
        Spectra(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=not PLANT,
    )


def main():
    torch.manual_seed(0)
    batches = loader()
    model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock = Stopwatch(period=len(batches))
    while clock.runs:
        for spectra, wanted in batches:
            scores = model(spectra.to(DEVICE)).squeeze(1)
            wanted = wanted.float().to(DEVICE)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
