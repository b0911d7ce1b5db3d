"""A mixture of experts; each expert looks for the rows that were routed to it."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, ROWS, EXPERTS, LAYERS = (512, 4096, 16, 4) if ON_GPU else (32, 128, 4, 2)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.route = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x):
        scores = self.route(x).softmax(-1)
        after = torch.zeros_like(x)
        best = scores.argmax(-1)
        for at, expert in enumerate(self.experts):
            if PLANT:
                rows = (best == at).nonzero().squeeze(1)
            else:  # as many rows for each: none has to be counted
                rows = scores[:, at].topk(ROWS // EXPERTS).indices
            mine = expert(x[rows]) * scores[rows, at].unsqueeze(1)
            after = after.index_add(0, rows, mine)
        return x + torch.relu(after)


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = nn.Sequential(*(Experts() for _ in range(LAYERS)), nn.Linear(WIDTH, 10)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = torch.randn(ROWS, WIDTH, device=DEVICE)
    classes = torch.randint(10, (ROWS,), device=DEVICE)
    clock = Stopwatch()
    while clock.runs:
        loss = nn.functional.cross_entropy(model(rows), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
