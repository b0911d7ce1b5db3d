"""Trainings whose steps are more than a forward pass, a backward pass and an update.

Parts that take their time do so by a fake clock, so that their phases are longer than all else.
"""

import copy
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, default_collate

from gpudash.script import discovery
from tests.script.shape import Net, data, made, random_batch, random_batches, shape, shapes, takes


class Slow(Net):
    """A model whose forward pass takes its time."""

    def forward(self, x):
        takes()
        return super().forward(x)


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def learn(model, optimizer, x, y):
    update(optimizer, functional.cross_entropy(model(x), y))


def learn_all(model, optimizer, batches):
    for x, y in batches:
        learn(model, optimizer, x, y)


def learn_from(encode):
    model, optimizer = made()
    for _ in range(3):
        learn_all(model, optimizer, ((encode(x), y) for x, y in data()))


class Autoencoder(nn.Module):
    """Is used by its methods, never called."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Slow(out=8), Net(out=8)

    def encode(self, x):
        return self.encoder(x)


def frozen():
    return Slow(out=8).eval().requires_grad_(requires_grad=False)


shapes(
    18,
    frozen_encoder=lambda _toy: learn_from(torch.no_grad()(frozen())),  # as in linear probing
    # nothing that it computes has a gradient, though the script does not say so
    frozen_encoder_with_gradients_on=lambda _toy: learn_from(frozen()),
    frozen_encoder_by_its_method=lambda _toy: learn_from(
        torch.no_grad()(Autoencoder().eval().encode)
    ),
)


@shape(18)
def distillation(toy):
    teacher = Slow().eval()
    model, optimizer = made()
    for _ in range(3):
        for x, _ in data():
            student = model(x)
            with torch.no_grad():
                wanted = teacher(x)
            update(optimizer, functional.mse_loss(student, wanted))


@shape(12)
def loss_by_a_frozen_model(toy):
    """Its gradients pass through the frozen model, which is part of the forward pass."""
    judge = Slow().eval().requires_grad_(requires_grad=False)
    model = Net(out=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for x, y in data():
            learn(lambda x: judge(model(x)), optimizer, x, y)


ROLLOUTS, UPDATES = 5, 8


def acts(agent, observations=2):
    with torch.no_grad():
        for _ in range(4):
            agent(torch.randn(observations, 8))
            takes()  # the environment


def roll_out(batches=lambda: random_batches(UPDATES), *, evaluates=False):
    """Act, and learn from that."""
    agent, optimizer = made()
    for _ in range(ROLLOUTS):
        agent.train(mode=not evaluates)
        acts(agent)
        agent.train()
        learn_all(agent, optimizer, batches())


shapes(
    ROLLOUTS * UPDATES,
    rollouts=lambda _toy: roll_out(),  # as in PPO
    rollouts_in_evaluation_mode=lambda _toy: roll_out(evaluates=True),  # as in Stable Baselines
)
shapes(ROLLOUTS * 6, rollouts_into_a_loader=lambda _toy: roll_out(data))


@shape(18)
def answers_prompts(toy, model, optimizer):
    """As in GRPO: the model that trains generates from each batch, a frozen one judges."""
    judge = Net().eval()
    for _ in range(3):
        for x, y in data():
            with torch.no_grad():
                for _ in range(4):
                    model(x)
                    takes()
                judge(x)
            learn(model, optimizer, x, y)


@shape(18)
def draws_previews(toy, model, optimizer):
    """As in diffusers: between epochs the model makes pictures, in training mode, a few at once."""
    batches = data()
    for _ in range(3):
        learn_all(model, optimizer, batches)
        acts(model)


def learn_by_a_target(act, compute=lambda: None):
    """Act with gradients, and learn from many at a time, by a target as well."""
    model, optimizer = made()
    target = Net()
    for _ in range(20):
        act(model)
        model.train()
        with torch.no_grad():
            wanted = target(torch.randn(16, 8))
        compute()
        update(optimizer, functional.mse_loss(model(torch.randn(16, 8)), wanted))


shapes(
    20,
    replay_buffer=lambda _toy: learn_by_a_target(lambda model: model.eval()(torch.randn(1, 8))),
    # as in C51: it computes at length with what a target says
    target_computed_by_hand=lambda _toy: learn_by_a_target(
        lambda model: model(torch.randn(16, 8)), takes
    ),
)


@shape(12)
def environment_between(toy):
    """As in REINFORCE: an environment between forward passes that one backward pass is about."""
    policy = Net()
    policy.norm = nn.Identity()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    for _ in range(12):
        chosen = []
        for _ in range(4):
            chosen.append(policy(torch.randn(1, 8)).log_softmax(1)[0, 0])
            takes()  # the environment
        update(optimizer, torch.stack(chosen).sum())


@shape(12)
def slow_loss(toy, model, optimizer):
    for _ in range(2):
        for x, y in data():
            computed = model(x)
            takes()
            update(optimizer, functional.cross_entropy(computed, y))


def unseen_loss(model, x):
    """Compute with the model's parameters, and call none of its parts."""
    return functional.linear(x, model.one.weight, model.one.bias).mean()


@shape(12)
def forward_of_no_part(toy):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for x, _ in data():
            update(optimizer, unseen_loss(model, x))


@shape(24)
def generator_steps_twice(toy):
    generator, critic = Net(out=8), Net()
    ones = torch.optim.Adam(critic.parameters()), torch.optim.Adam(generator.parameters())
    for x, _ in data(24 * 8):
        made_up = generator(torch.randn(8, 8)).detach()
        update(ones[0], critic(x).mean() - critic(made_up).mean())
        for _ in range(2):
            update(ones[1], critic(generator(torch.randn(8, 8))).mean())


one_search = patch.multiple(discovery, SURVEYS_S=0.0, SURVEYS_SHARE=0.0)


def learn_anew(model):
    learn_all(model, torch.optim.SGD(model.parameters(), lr=0.1), random_batches(5))


@shape(60)
@one_search
def many_models(toy):
    """As in a search or in k-fold: each model is new, or copied, and released in between."""
    first = Net()
    for number in range(12):
        learn_anew(copy.deepcopy(first) if number % 2 else Net())


@shape(10)
@one_search
def made_unseen(toy):
    learn_anew(Net())
    unseen = nn.Linear.__new__(nn.Linear)
    unseen.__dict__ |= vars(nn.Linear(8, 2))
    learn_anew(unseen)


class Sequences(nn.Module):
    def __init__(self, *, batch_first):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=batch_first)

    def forward(self, x):
        return self.lstm(x)[0]


def learn_sequences(*, batch_first):
    model = Sequences(batch_first=batch_first)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(12):
        update(optimizer, model(torch.randn(7, 5, 8)).mean())


shapes(
    12,
    sequence_first=lambda _toy: learn_sequences(batch_first=False),
    batch_first=lambda _toy: learn_sequences(batch_first=True),
)


@shape(12)
def one_model_called_thrice(toy, model, optimizer):
    """Nothing shows whether the calls are of the same samples."""
    for _ in range(12):
        update(optimizer, sum(model(torch.randn(16, 8)).mean() for _ in range(3)))


@shape(12)
def accumulates_without_a_loader(toy, model, optimizer):
    for number in range(24):
        model(torch.randn(16, 8)).mean().backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


@shape(12)
def slow_augmentation(toy, model, optimizer):
    """Own code between batch and forward pass, with nothing to copy."""
    for _ in range(2):
        for x, y in data():
            takes()
            learn(model, optimizer, x, y)


def on_another_device():
    """Stands for a GPU: the batches are on the device `meta`."""
    rows = data().dataset
    return DataLoader(rows, 8, collate_fn=lambda batch: default_collate(batch)[0].to("meta"))


@shape(12)
def batch_of_another_device(toy, model, optimizer):
    for _ in range(2):
        for _ in on_another_device():
            takes()
            learn(model, optimizer, torch.randn(8, 8), torch.randint(2, (8,)))


@shape(12)
def own_code_before_and_behind_copies(toy, model, optimizer):
    for _ in range(2):
        for x in on_another_device():
            takes()
            x.to("meta", copy=True)
            x.to("meta")
            takes()
            learn(model, optimizer, torch.randn(8, 8), torch.randint(2, (8,)))
    return {"hooked": "to" in vars(torch.Tensor)}


@shape(20)
def evaluates_in_training_mode(toy, model, optimizer):
    for number in range(20):
        if number % 5 == 4:
            with torch.no_grad():
                model(torch.randn(32, 8))
        learn(model, optimizer, *random_batch())


@shape(12)
def target_in_each_step(toy):
    """The model computes its own target, after it was called to train."""
    model = Net()
    model.register_forward_hook(lambda *_: None if torch.is_grad_enabled() else takes())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for x, _ in data():
            computed = model(x)
            with torch.no_grad():
                wanted = model(x)
            update(optimizer, functional.mse_loss(computed, wanted))
