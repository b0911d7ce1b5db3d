"""Trainings that declare their steps."""

import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

import gpudash
from gpudash.script import explicit
from tests.script.shape import Net, backward, data, made, shape

PAUSE_S = 0.05
"""Longer by far than a step."""


def declared(steps):
    """As `shape`, with `gpudash.step` connected to the tracker."""

    def decorate(function):
        def heard(toy):
            explicit.tell = toy.tracker.tell
            return function(toy)

        heard.__name__ = function.__name__
        return shape(steps)(heard)

    return decorate


def train(model, optimizer, batch=None):
    backward(model, batch or (torch.randn(16, 8), torch.randint(2, (16,))))
    optimizer.step()


@declared(12)
def each_batch(toy):
    model, optimizer = made()
    for batch in data(96):
        with gpudash.step():
            train(model, optimizer, batch)


@declared(6)
def two_rounds_a_step(toy):
    model, optimizer = made()
    batches = iter(data(96))
    for _ in range(6):
        with gpudash.step():
            train(model, optimizer, next(batches))
            train(model, optimizer, next(batches))


@declared(12)
def a_round_every_other_step(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(96)):
        with gpudash.step():
            backward(model, batch)
            if number % 2:
                optimizer.step()


@declared(10)
def says_what_it_trains_on(toy):
    model, optimizer = made()
    for number in range(10):
        with gpudash.step(samples=3) as step:
            train(model, optimizer)
            step.tokens = 100 + number


@declared(6)
def nested(toy):
    model, optimizer = made()
    one = gpudash.step(samples=5)
    for batch in data():
        with one, gpudash.step(samples=7), one:
            train(model, optimizer, batch)


@declared(11)
def one_fails(toy):
    model, optimizer = made()
    came = []
    for number, batch in enumerate(data(96)):
        try:
            with gpudash.step():
                backward(model, batch)
                if number == 4:
                    raise KeyError(number)  # noqa: TRY301
                optimizer.step()
        except KeyError as error:
            came += error.args
    return {"came": came}


@declared(10)
def sleeps_between(toy):
    model, optimizer = made()
    for _ in range(10):
        with gpudash.step():
            train(model, optimizer)
        time.sleep(PAUSE_S)


class Slow(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, number):
        time.sleep(PAUSE_S)
        return torch.randn(8, 8), torch.randint(2, (8,))


@declared(6)
def waits_between(toy):
    model, optimizer = made()
    for batch in DataLoader(Slow(), batch_size=None):
        with gpudash.step():
            train(model, optimizer, batch)


@declared(12)
def evaluates_between(toy):
    model, optimizer = made()
    batches, held_out = data(), data(16)
    for _ in range(2):
        for number, batch in enumerate(batches, 1):
            with gpudash.step():
                train(model, optimizer, batch)
            if number % 3 == 0:
                model.eval()
                with torch.no_grad():
                    for x, _ in held_out:
                        model(x)
                        time.sleep(PAUSE_S)
                model.train()


@declared(12)
def evaluates_inside(toy):
    model, optimizer = made()
    for batch in data(96):
        with gpudash.step():
            with torch.no_grad():
                model(batch[0])
            train(model, optimizer, batch)


@declared(15)
def after_steps_that_were_found(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(15 * 8)):
        if number < 5:
            train(model, optimizer, batch)
        else:
            with gpudash.step():
                train(model, optimizer, batch)


@declared(10)
def beside_another_thread(toy):
    model, optimizer = made()

    def other():
        with gpudash.step():
            pass

    for batch in data(80):
        with gpudash.step():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            train(model, optimizer, batch)


@declared(10)
def no_optimizer_at_all(toy):
    model = Net()
    for batch in data(80):
        with gpudash.step():
            backward(model, batch)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.01 * parameter.grad)
                    parameter.grad = None


@declared(40)
def off_and_on(toy):
    model, optimizer = made()

    def flip(step):
        if step in (10, 20):
            toy.tracker.meter.active = step == 20

    toy.at_border = flip
    for batch in data(320):
        with gpudash.step():
            train(model, optimizer, batch)


@declared(4)
def no_number(toy):
    model, optimizer = made()
    for number, batch in enumerate(data(80)):
        with gpudash.step(tokens="many" if number == 4 else torch.tensor(4)):
            train(model, optimizer, batch)


def of_tokens(**row):
    model, optimizer = made()
    rows = [{"input_ids": torch.ones(8)} | row for _ in range(64)]
    for batch in DataLoader(rows, batch_size=8):
        train(model, optimizer, (batch["input_ids"] * torch.randn(8, 1), torch.randint(2, (8,))))


@declared(8)
def tokens_of_the_batches(toy):
    of_tokens()


@declared(8)
def tokens_with_a_mask(toy):
    of_tokens(attention_mask=torch.arange(8) < 3)
