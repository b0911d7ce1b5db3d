"""Trainings that declare their steps."""

import threading
import time
from contextlib import nullcontext
from functools import wraps

import torch
from torch.utils.data import DataLoader, Dataset

import gpudash
from gpudash.script import explicit
from tests.script.shape import (
    Net,
    backward,
    data,
    evaluate,
    fit,
    made,
    random_batch,
    shape,
)

PAUSE_S = 0.05
"""Longer by far than a step."""


def declared(steps):
    """As `shape`, with `gpudash.step` connected to the tracker."""

    def decorate(function):
        @wraps(function)
        def heard(toy, *trained):
            explicit.tell = toy.tracker.tell
            return function(toy, *trained)

        return shape(steps)(heard)

    return decorate


def train(model, optimizer, batch=None):
    fit(model, optimizer, [batch or random_batch()])


def train_on(batches):
    """Declare a step for each batch."""
    model, optimizer = made()
    for batch in batches:
        with gpudash.step():
            train(model, optimizer, batch)


@declared(12)
def each_batch(toy):
    train_on(data(96))


@declared(6)
def two_rounds_a_step(toy, model, optimizer):
    batches = iter(data(96))
    for _ in range(6):
        with gpudash.step():
            train(model, optimizer, next(batches))
            train(model, optimizer, next(batches))


@declared(12)
def a_round_every_other_step(toy, model, optimizer):
    for number, batch in enumerate(data(96)):
        with gpudash.step():
            backward(model, batch)
            if number % 2:
                optimizer.step()


@declared(10)
def says_what_it_trains_on(toy, model, optimizer):
    for number in range(10):
        with gpudash.step(samples=3) as step:
            train(model, optimizer)
            step.tokens = 100 + number


@declared(6)
def nested(toy, model, optimizer):
    one = gpudash.step(samples=5)
    for batch in data():
        with one, gpudash.step(samples=7), one:
            train(model, optimizer, batch)


@declared(11)
def one_fails(toy, model, optimizer):
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
def sleeps_between(toy, model, optimizer):
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
    train_on(DataLoader(Slow(), batch_size=None))


@declared(12)
def evaluates_between(toy, model, optimizer):
    batches, held_out = data(), data(16)
    for _ in range(2):
        for number, batch in enumerate(batches, 1):
            with gpudash.step():
                train(model, optimizer, batch)
            if number % 3 == 0:
                evaluate(model, held_out, PAUSE_S)


@declared(12)
def evaluates_inside(toy, model, optimizer):
    for batch in data(96):
        with gpudash.step():
            with torch.no_grad():
                model(batch[0])
            train(model, optimizer, batch)


@declared(15)
def after_steps_that_were_found(toy, model, optimizer):
    for number, batch in enumerate(data(15 * 8)):
        with gpudash.step() if number >= 5 else nullcontext():
            train(model, optimizer, batch)


@declared(10)
def beside_another_thread(toy, model, optimizer):

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
    def flip(step):
        if step in (10, 20):
            toy.tracker.meter.active = step == 20

    toy.at_border = flip
    train_on(data(320))


@declared(4)
def no_number(toy, model, optimizer):
    for number, batch in enumerate(data(80)):
        with gpudash.step(tokens="many" if number == 4 else torch.tensor(4)):
            train(model, optimizer, batch)


def of_tokens(**row):
    rows = [{"input_ids": torch.ones(8)} | row for _ in range(64)]
    batches = DataLoader(rows, batch_size=8)
    _, answers = random_batch(8)
    fit(*made(), ((batch["input_ids"] * torch.randn(8, 1), answers) for batch in batches))


@declared(8)
def tokens_of_the_batches(toy):
    of_tokens()


@declared(8)
def tokens_with_a_mask(toy):
    of_tokens(attention_mask=torch.arange(8) < 3)
