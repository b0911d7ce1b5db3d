"""The training of workload encdec as a tutorial writes it, without a line of gpudash.

    python benchmarks/plain_loop.py --streams 1 --steps 1000
    python benchmarks/plain_loop.py --streams 2 --steps 1000

Four batches of random images are held on the device. A frozen encoder turns images into features,
and a decoder is trained on them. On two streams the next batch is encoded while one is trained on.
The result is one JSON line, with the steps/s from an idle device to an idle device.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import cycle

import torch
from torch import Tensor, nn

CLASSES = 10
WARMUP_STEPS = 10
SIZES = {"full": (256, 16), "small": (64, 8)}
"""Side of the images, and channels of the first layer; a CPU gets the small ones."""

Batch = tuple[Tensor, Tensor]


def build_batches(side: int, batch_size: int, device: torch.device) -> Iterator[Batch]:
    """Return four batches, over and over: images (B, 3, S, S) and classes (B, S, S)."""
    samples = []
    for seed in range(4 * batch_size):
        generator = torch.Generator().manual_seed(seed)
        image = torch.rand(3, side, side, generator=generator)
        samples.append((image, torch.randint(0, CLASSES, (side, side), generator=generator)))
    batches = []
    for first in range(0, len(samples), batch_size):
        images, labels = zip(*samples[first : first + batch_size], strict=True)
        batches.append((torch.stack(images).to(device), torch.stack(labels).to(device)))
    return cycle(batches)


def build_models(side: int, channels: int) -> tuple[nn.Module, nn.Module]:
    """Return the encoder, (B, 3, S, S) → (B, E, 1, 1), and the decoder, → (B, classes, S, S)."""
    torch.manual_seed(0)
    halvings = side.bit_length() - 1
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 1)]
    for _ in range(halvings):
        layers += [nn.ReLU(inplace=True), nn.Conv2d(channels, 2 * channels, 2, stride=2)]
        channels *= 2
    encoder = nn.Sequential(*layers).requires_grad_(False).eval()
    layers = []
    for _ in range(halvings):
        layers += [nn.ConvTranspose2d(channels, channels // 2, 2, stride=2), nn.ReLU(inplace=True)]
        channels //= 2
    decoder = nn.Sequential(*layers, nn.Conv2d(channels, CLASSES, 3, padding=1))
    return encoder, decoder


class Plain:
    """Both models and the optimizer, and the two ways to step them."""

    def __init__(self, batch_size: int, device: torch.device, size: str) -> None:
        side, channels = SIZES[size]
        self.device = device
        self.batches = build_batches(side, batch_size, device)
        encoder, decoder = build_models(side, channels)
        self.encoder, self.decoder = encoder.to(device), decoder.to(device)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.decoder.parameters(), lr=1e-3)

    def train(self, features: Tensor, labels: Tensor) -> Tensor:
        """Train the decoder; return the loss."""
        self.optimizer.zero_grad()
        loss: Tensor = self.criterion(self.decoder(features), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.optimizer.step()
        return loss.detach()

    def serial(self) -> Iterator[Tensor]:
        """Encode and train, one after the other. Each turn is a step, and gives its loss."""
        for images, labels in self.batches:
            with torch.no_grad():
                features = self.encoder(images)
            yield self.train(features, labels)

    def two_streams(self) -> Iterator[Tensor]:
        """Train on one batch while the next is encoded on another stream of a GPU."""
        main = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]  # in torch
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # in torch
        torch.cuda.synchronize()  # sync: batches and weights are there for both streams
        torch.cuda.set_stream(main)
        prepared: Batch | None = None
        for images, labels in self.batches:
            loss = None
            if prepared is not None:
                main.wait_stream(side)
                for tensor in prepared:
                    tensor.record_stream(main)
                loss = self.train(*prepared)
            with torch.cuda.stream(side), torch.no_grad():
                prepared = self.encoder(images), labels
            if loss is not None:
                yield loss

    def synchronize(self) -> None:
        """Wait until the device has finished everything enqueued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # sync: requested by the caller


def main() -> None:
    """Train, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, choices=(1, 2), default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()
    plain = Plain(arguments.batch_size, torch.device("cuda"), "full")
    steps = plain.serial() if arguments.streams == 1 else plain.two_streams()
    for _ in range(WARMUP_STEPS):
        next(steps)
    plain.synchronize()  # sync: the clock starts
    began = time.perf_counter()
    for _ in range(arguments.steps):
        loss = next(steps)
    plain.synchronize()  # sync: the clock stops
    steps_per_s = arguments.steps / (time.perf_counter() - began)
    print(json.dumps({"steps_per_s": steps_per_s, "loss": loss.item()}))


if __name__ == "__main__":
    main()
