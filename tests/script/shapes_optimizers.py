"""Trainings by what makes a step of theirs: optimizers in turns, several passes, or none."""

import io
from itertools import islice

import torch
from torch import nn
from torch.nn import functional

from tests.script.shape import (
    Net,
    backward,
    data,
    evaluate,
    fit,
    made,
    random_batches,
    shape,
)


@shape(6)
def accumulation(toy, model, optimizer):
    for number, batch in enumerate(data(24 * 8), 1):
        backward(model, batch)
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def critics(generator, critic, batches):
    ones = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for x, _ in batches:
        fake = generator(torch.randn(8, 8))
        ones[0].zero_grad()
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        ones[0].step()
        ones[1].zero_grad()
        critic(generator(torch.randn(8, 8))).mean().backward()
        ones[1].step()


@shape(12)
def gan(toy):
    critics(Net(out=8), Net(), data(96))


@shape(5)
def lbfgs(toy):
    model, _ = made()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x, y = torch.randn(32, 8), torch.randint(2, (32,))

    def closure():
        optimizer.zero_grad()
        return backward(model, (x, y))

    for _ in range(5):
        optimizer.step(closure)


@shape(6)
def scaler(toy, model, optimizer):
    grad_scaler = torch.amp.GradScaler("cpu")
    losses = []
    for number, (x, y) in enumerate(data()):
        loss = functional.cross_entropy(model(x), y)
        losses.append(loss.item())
        grad_scaler.scale(loss * (float("inf") if number in (1, 3) else 1)).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        optimizer.zero_grad()
    return {"losses": losses}


@shape(8)
def optimizer_in_backward(toy):
    model, _ = made()
    ones = {one: torch.optim.SGD([one], lr=0.01) for one in model.parameters()}

    def step(parameter):
        ones[parameter].step()
        ones[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for batch in data(64):
        backward(model, batch)


@shape(12)
def one_optimizer_in_backward(toy, model, optimizer):

    def step(_parameter):
        optimizer.step()
        optimizer.zero_grad()

    model.one.weight.register_post_accumulate_grad_hook(step)  # whose gradient is among the last
    for batch in data(96):
        backward(model, batch)


@shape(20)
def no_optimizer(toy):
    model, optimizer = made()
    del optimizer
    for batch in data(160):
        model.zero_grad()
        backward(model, batch)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.01 * parameter.grad)


@shape(22)
def one_training_after_the_other(toy):
    for (model, optimizer), count in ((made(), 10), (made(16), 12)):
        fit(model, optimizer, data(count * 8))


@shape(40)
def another_optimizer_within_an_epoch(toy):
    model, first = made()
    second = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(data(8 * 40))
    fit(model, first, islice(batches, 20))
    fit(model, second, batches)


@shape(60)
def second_optimizer_now_and_then(toy, model, optimizer):
    """It steps in no rhythm; the training evaluates, and ends where a step may go on."""
    scale = nn.Linear(8, 8)
    second = torch.optim.SGD(scale.parameters(), lr=0.01)
    rows = data(32)
    for number, (x, y) in enumerate(data(60 * 8)):
        backward(model, (scale(x), y))
        optimizer.step()
        if number in (2, 5, 7, 12, 14, 25, 27, 30, 31, 45, 50, 56, 57):
            second.step()
        if number % 7 == 5:
            evaluate(model, ((scale(x), y) for x, y in rows))


@shape(20)
def optimizers_born_in_the_first_step(toy):
    """As in Pyro: each parameter gets an optimizer of its own when it is first updated."""
    model, ones = Net(), {}
    for batch in random_batches(20):
        backward(model, batch)
        for parameter in model.parameters():
            if parameter not in ones:
                ones[parameter] = torch.optim.Adam([parameter], lr=0.01)
            ones[parameter].step()
            ones[parameter].zero_grad()


@shape(40)
def labels_its_own_batches_beside_an_optimizer_that_rests(toy, model, optimizer):
    resting = Net()
    optimizers = optimizer, torch.optim.SGD(resting.parameters(), lr=0.01)
    for x, _ in data(40 * 8):
        model.eval()
        with torch.no_grad():
            y = model(x).argmax(1)
        model.train()
        backward(model, (x, y))
        optimizers[0].step()


@shape(40)
def saves_once_a_batch_is_there_beside_an_optimizer_that_rests(toy, model, optimizer):
    resting = Net()
    optimizers = optimizer, torch.optim.SGD(resting.parameters(), lr=0.01)
    for number, batch in enumerate(data(40 * 8)):
        if number % 5 == 4:
            model.eval()
            torch.save(model.state_dict(), io.BytesIO())
            model.train()
        backward(model, batch)
        optimizers[0].step()
