"""A U-shaped net for depth maps; its author empties the allocator's cache after each step."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

SIDE, BATCH = (192, 8) if ON_GPU else (32, 2)


class Double(nn.Sequential):
    def __init__(self, before, after):
        super().__init__(
            nn.Conv2d(before, after, 3, padding=1),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1),
            nn.ReLU(inplace=True),
        )


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.top, self.middle, self.bottom = Double(3, 16), Double(16, 32), Double(32, 64)
        self.rise, self.last = Double(96, 32), Double(48, 16)
        self.out = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        top = self.top(x)
        middle = self.middle(nn.functional.max_pool2d(top, 2))
        bottom = self.bottom(nn.functional.max_pool2d(middle, 2))
        rise = nn.functional.interpolate(bottom, scale_factor=2.0)
        rise = self.rise(torch.cat((rise, middle), 1))
        last = nn.functional.interpolate(rise, scale_factor=2.0)
        return self.out(self.last(torch.cat((last, top), 1)))


def main():
    torch.manual_seed(0)
    model = Depth().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    pictures = torch.rand(BATCH, 3, SIDE, SIDE, device=DEVICE)
    depths = pictures.mean(1, keepdim=True)
    clock = Stopwatch()
    while clock.runs:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.l1_loss(model(pictures), depths)
        loss.backward()
        optimizer.step()
        if PLANT and ON_GPU:
            torch.cuda.empty_cache()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
