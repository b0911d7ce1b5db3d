"""Trainings by a library with optimizers and loaders of its own, of which torch knows nothing."""

import sys
from contextlib import contextmanager
from types import ModuleType

import torch
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from tests.script.shape import (
    Net,
    backward,
    data,
    fit,
    made,
    random_batch,
    shape,
    takes,
)


class OwnOptimizer:
    """A library's own."""

    def __init__(self, model):
        self.all = list(model.parameters())

    def step(self):
        takes()
        with torch.no_grad():
            for one in self.all:
                one.sub_(0.01 * one.grad)
                one.grad = None


@contextmanager
def library():
    """Have the script import the library; yield the class of its optimizers."""
    module = ModuleType("fastai.optimizer")
    module.Optimizer = type("Optimizer", (OwnOptimizer,), {"__module__": module.__name__})
    sys.modules[module.__name__] = module
    yield module.Optimizer
    del sys.modules[module.__name__]


class OwnLoader:
    """A library's own, around iterators of torch's."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def __iter__(self):
        yield from _SingleProcessDataLoaderIter(self)


OwnLoader.__module__ = "fastai.data.load"


@shape(24)
def library_with_optimizer_and_loader_of_its_own(toy):
    with library() as optimizer_of:
        model = Net()
        fit(model, optimizer_of(model), OwnLoader(data(24 * 8)))


def learn_in_turns(optimizer_of, batches):
    generator, critic = Net(out=8), Net()
    of_critic, of_generator = optimizer_of(critic), optimizer_of(generator)
    for x in batches:
        fake = generator(torch.randn(8, 8))
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        of_critic.step()
        critic(fake).mean().backward()
        critic.zero_grad()
        of_generator.step()


@shape(24)
def library_with_two_optimizers(toy):
    with library() as optimizer_of:
        learn_in_turns(optimizer_of, (x for x, _ in OwnLoader(data(24 * 8))))


@shape(24)
def library_with_two_optimizers_and_no_loader(toy):
    with library() as optimizer_of:
        learn_in_turns(optimizer_of, (torch.randn(8, 8) for _ in range(24)))


@shape(60)
def library_between_two_trainings(toy):
    with library() as optimizer_of:
        for width in (8, 12, 16):
            model, optimizer = made(width)
            if width == 12:
                optimizer = optimizer_of(model)
            for _ in range(20):
                model.zero_grad()
                backward(model, random_batch())
                optimizer.step()
