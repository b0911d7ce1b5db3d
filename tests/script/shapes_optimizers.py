"""Trainings by what makes a step of theirs: optimizers in turns, several passes, or none."""

import io

import torch
from torch import nn
from torch.nn import functional

from tests.script.shape import Net, backward, data, made, shape


@shape(6)
def accumulation(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(24 * 8), 1):
        backward(model, batch)
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def critics(generator, critic, batches, every=1, *, freeze=False):
    ones = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for number, (x, _) in enumerate(batches, 1):
        fake = generator(torch.randn(8, 8))
        if freeze:
            with torch.no_grad():
                fake = generator(torch.randn(8, 8))
        ones[0].zero_grad()
        (critic(x).mean() - critic(fake.detach()).mean()).backward()
        ones[0].step()
        if number % every == 0:
            ones[1].zero_grad()
            critic(generator(torch.randn(8, 8))).mean().backward()
            ones[1].step()


@shape(12)
def gan(toy):
    critics(Net(out=8), Net(), data(96))


@shape(30)
def critic_five_times(toy):
    critics(Net(out=8), Net(), data(30 * 8), every=5)


@shape(12)
def gan_with_frozen_generator(toy):
    critics(Net(out=8), Net(), data(96), freeze=True)


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
def scaler(toy):
    model, optimizer = made()
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
def one_optimizer_in_backward(toy):
    model, optimizer = made()

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


@shape(32)
def passes_before_an_optimizer(toy):
    """As in a study of gradients before a training: the first passes are taken for steps."""
    model = Net()
    for _ in range(12):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        model.zero_grad(set_to_none=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
        optimizer.step()


@shape(22)
def one_training_after_the_other(toy):
    first, second = made(), made(16)
    for (model, optimizer), count in ((first, 10), (second, 12)):
        for batch in data(count * 8):
            backward(model, batch)
            optimizer.step()


@shape(22)
def one_training_after_the_other_without_loader(toy):
    first, second = made(), made(16)
    for (model, optimizer), count in ((first, 10), (second, 12)):
        for _ in range(count):
            backward(model, (torch.randn(16, 8), torch.randint(2, (16,))))
            optimizer.step()


@shape(40)
def another_optimizer_within_an_epoch(toy):
    model, first = made()
    second = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(data(8 * 40)):
        backward(model, batch)
        (first if number < 20 else second).step()


@shape(60)
def second_optimizer_now_and_then(toy):
    """It steps in no rhythm; the training evaluates, and ends where a step may go on."""
    model, optimizer = made()
    scale = nn.Linear(8, 8)
    second = torch.optim.SGD(scale.parameters(), lr=0.01)
    rows = data(32)
    for number, (x, y) in enumerate(data(60 * 8)):
        backward(model, (scale(x), y))
        optimizer.step()
        if number in (2, 5, 7, 12, 14, 25, 27, 30, 31, 45, 50, 56, 57):
            second.step()
        if number % 7 == 5:
            model.eval()
            with torch.no_grad():
                for held_out, _ in rows:
                    model(scale(held_out))
            model.train()


@shape(40)
def second_optimizer_without_a_loader(toy):
    """As an actor that is updated now and then, and its critic in each step."""
    critic, optimizer = made()
    actor = Net()
    second = torch.optim.SGD(actor.parameters(), lr=0.01)
    for number in range(40):
        batch = torch.randn(8, 8), torch.randint(2, (8,))
        optimizer.zero_grad()
        backward(critic, batch)
        optimizer.step()
        if number in (3, 4, 9, 17, 18, 19, 33):
            second.zero_grad()
            backward(actor, batch)
            second.step()


def in_pyro(batches):
    """Each parameter gets an optimizer of its own when it is first updated."""
    model, ones = Net(), {}
    for batch in batches:
        backward(model, batch)
        for parameter in model.parameters():
            if parameter not in ones:
                ones[parameter] = torch.optim.Adam([parameter], lr=0.01)
            ones[parameter].step()
            ones[parameter].zero_grad()


@shape(20)
def optimizers_born_in_the_first_step(toy):
    in_pyro((torch.randn(16, 8), torch.randint(2, (16,))) for _ in range(20))


@shape(20)
def optimizers_born_in_the_first_step_with_a_loader(toy):
    in_pyro(data(160))


@shape(30)
def optimizers_born_in_a_later_step(toy):
    """A parameter is used from the eleventh step on."""
    model, optimizer = made()
    late = torch.zeros(8, requires_grad=True)
    for number in range(30):
        batch = torch.randn(16, 8) + (late if number >= 10 else 0), torch.randint(2, (16,))
        backward(model, batch)
        optimizer.step()
        if number == 10:
            second = torch.optim.Adam([late], lr=0.01)
        if number >= 10:
            second.step()


@shape(40)
def labels_its_own_batches_beside_an_optimizer_that_rests(toy):
    model, optimizer = made()
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
def saves_once_a_batch_is_there_beside_an_optimizer_that_rests(toy):
    model, optimizer = made()
    resting = Net()
    optimizers = optimizer, torch.optim.SGD(resting.parameters(), lr=0.01)
    for number, batch in enumerate(data(40 * 8)):
        if number % 5 == 4:
            model.eval()
            torch.save(model.state_dict(), io.BytesIO())
            model.train()
        backward(model, batch)
        optimizers[0].step()
