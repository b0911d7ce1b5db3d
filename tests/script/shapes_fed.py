"""Trainings whose loaders are slow, nested, left early, or give batches of many kinds."""

from itertools import starmap

import torch
from torch.utils.data import DataLoader, default_collate

from gpudash.script import batches
from tests.script.shape import CALLS_A_BATCH, backward, data, fit, made, random_batches, shape


@shape(12)
def loader(toy):
    model, optimizer = made()
    batches = data()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    losses = []
    for _ in range(2):
        for batch in batches:
            optimizer.zero_grad()
            losses.append(backward(model, batch).item())
            optimizer.step()
            scheduler.step()
    return {"losses": losses}


@shape(60)
def loader_left_within_an_epoch(toy, model, optimizer):
    for number, batch in enumerate(data()):
        backward(model, batch)
        optimizer.step()
        if number == 4:
            break
    fit(model, optimizer, random_batches(55))


def named(samples, collate=default_collate):
    rows = [{"x": torch.randn(8), "y": torch.tensor(number % 2)} for number in range(samples)]
    return ((one["x"], one["y"]) for one in DataLoader(rows, 8, collate_fn=collate))


@shape(25)
def batches_of_many_kinds(toy, model, optimizer):
    """Tensors, dicts, and a last batch that is smaller."""
    for _ in range(2):
        fit(model, optimizer, data(92))
    fit(model, optimizer, named(8))


@shape(16)
def slow_dicts(toy):
    def collated(samples):
        for _ in range(CALLS_A_BATCH):
            batches.time.monotonic()
        return default_collate(samples)

    fit(*made(), named(128, collated))


class SlowToEnd(torch.utils.data.Sampler):
    """Takes its time to say that no batch is left, as loader workers do that end."""

    def __init__(self, samples=96):
        self.samples = samples

    def __iter__(self):
        yield from range(self.samples)
        for _ in range(CALLS_A_BATCH):
            batches.time.monotonic()


@shape(11)
def leaves_a_step(toy, model, optimizer):
    for number, batch in enumerate(data(8 * 20)):
        if number == 11:
            break
        backward(model, batch)
        optimizer.step()


@shape(36)
def slow_ends(toy, model, optimizer):
    for _ in range(3):
        fit(model, optimizer, DataLoader(data(96).dataset, 8, sampler=SlowToEnd()))


@shape(sum(range(15, 20)))
def slow_ends_after_any_step(toy, model, optimizer):
    """Some epochs end after a step that is measured in full. The host's times are of one clock."""
    for batches_an_epoch in range(15, 20):
        loader = DataLoader(data(8 * 24).dataset, 8, sampler=SlowToEnd(8 * batches_an_epoch))
        for batch in loader:
            backward(model, batch)
            optimizer.step()
            toy.tracker.meter.clock._now = batches.time.monotonic


@shape(16)
def nested_tensors(toy):
    def collated(samples):
        return torch.nested.nested_tensor([x for x, _ in samples]), [y for _, y in samples]

    def mean(x, y):
        return torch.stack([one.mean(0) for one in x.unbind()]), torch.tensor(y)

    rows = [(torch.randn(1 + number % 3, 8), number % 2) for number in range(128)]
    fit(*made(), starmap(mean, DataLoader(rows, 8, collate_fn=collated)))


class Nested(torch.utils.data.Dataset):
    """Has a loader of its own."""

    def __len__(self):
        return 96

    def __getitem__(self, index):
        if index % 24 == 23:
            return next(iter(DataLoader(torch.randn(4, 8), 4)))[0], index % 2
        return torch.randn(8), index % 2


@shape(12)
def loader_within_a_loader(toy):
    fit(*made(), DataLoader(Nested(), 8))
