"""After every epoch an evaluation on other data and a checkpoint: `checkpoint.pt` in the folder."""

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

torch.manual_seed(0)
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
training = DataLoader(digits(), batch_size=64, shuffle=True)
evaluation = DataLoader(digits(512), batch_size=128)
steps = 0
for epoch in range(3):
    model.train()
    for images, answers in training:
        optimizer.zero_grad()
        cross_entropy(model(images), answers).backward()
        optimizer.step()
        steps += 1
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in evaluation)
    print(f"epoch {epoch}: {right} of 512 right")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
say(steps, model)
