"""Two loader workers that live on from epoch to epoch, pinned memory where there is a GPU."""

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    model = classifier().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(
        digits(), 64, shuffle=True, num_workers=2, persistent_workers=True, pin_memory=cuda
    )
    steps = 0
    for epoch in range(3):
        for images, answers in loader:
            loss = cross_entropy(model(images.to(device)), answers.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    say(steps, model)
