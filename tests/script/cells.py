"""Runs trainings over the cells of a notebook in one process, and prints the results."""

import contextlib
import threading
from functools import partial

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.script.toy import Cases

CASES = Cases()


GOES_ON = {"anew": [], "samples": [8]}


def loader(batches=3):
    return DataLoader(TensorDataset(torch.ones(8 * batches, 8)), 8)


def training():
    model = nn.Linear(8, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def fit(model, optimizer, batches):
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


PLACES = ("batch", "forward", "backward", "optimizer")


def interrupted(toy, where):
    """Interrupt the second step of a cell, go on in the next one."""
    model, optimizer = training()
    fit(model, optimizer, loader())
    place = PLACES.index(where)
    with contextlib.suppress(KeyboardInterrupt):
        for number, (x,) in enumerate(loader()):
            left = place if number == 1 else len(PLACES)
            stop_at(left == 0)
            loss = model(x).sum()
            stop_at(left == 1)
            loss.backward()
            stop_at(left == 2)
            optimizer.step((lambda: stop_at(here=True)) if left == 3 else None)
    toy.tracker.tell("cell: ends")
    fit(model, optimizer, loader())
    toy.tracker.tell("cell: ends")


def stop_at(here):
    if here:
        raise KeyboardInterrupt


CASES |= {
    f"interrupted_in_{where}": (partial(interrupted, where=where), GOES_ON | {"steps": 7})
    for where in PLACES
}


@CASES.case(**GOES_ON, steps=6, fetching=False)
def interrupted_while_it_waits_for_a_batch(toy):
    model, optimizer = training()
    fit(model, optimizer, loader())

    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, _):
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        fit(model, optimizer, DataLoader(Slow(), 8))
    toy.tracker.tell("cell: ends")
    fit(model, optimizer, loader())
    return {"fetching": toy.tracker.meter.counting.fetching}


@CASES.case(steps=9, anew=[], asides=[["idle", 3], [None, 3], ["idle", 6], [None, 6], ["idle", 9]])
def the_same_goes_on(toy):
    model, optimizer = training()
    for _ in range(3):
        fit(model, optimizer, loader())
        toy.tracker.tell("cell: ends")
        toy.tracker.tell("cell: begins")
        toy.tracker.tell("cell: ends")  # a cell that does nothing


@CASES.case(steps=2, anew=[5], hooked=[[], ["_compiled_call_impl"]], feeds=True)
def another_begins_anew(toy):
    model, optimizer = training()
    fit(model, optimizer, loader(5))
    toy.tracker.tell("cell: ends")
    other, its_optimizer = training()
    batches = loader(2)
    fit(other, its_optimizer, batches)
    hooked = [sorted(vars(one).keys() & {"_compiled_call_impl"}) for one in (model, other)]
    feed = toy.newest.feed
    return {"hooked": hooked, "feeds": feed is not None and feed.loader() is batches}


@CASES.case(steps=6, anew=[])
def a_second_one_in_the_same_cell_goes_on(toy):
    for _ in range(2):
        fit(*training(), loader())


@CASES.case(why=["idle", "evaluation", "idle", None])
def a_cell_that_evaluates(toy):
    model, optimizer = training()
    fit(model, optimizer, loader())
    toy.tracker.tell("cell: ends")
    model.eval()
    with torch.no_grad():
        model(torch.ones(8, 8))
    toy.tracker.tell("cell: ends")
    model.train()
    fit(model, optimizer, loader())


@CASES.case(asides=[])
def a_training_on_another_thread(toy):
    thread = threading.Thread(target=fit, args=(*training(), loader()))
    thread.start()
    thread.join()
    toy.tracker.tell("cell: ends")


def of_a_gan(toy, between):
    """Three steps, a half, and three more."""
    (one, first), (other, second) = training(), training()
    fit_both(one, first, other, second, 3)
    one(torch.ones(8, 8)).sum().backward()
    first.step()
    toy.tracker.tell(between)
    fit_both(one, first, other, second, 3)


CASES |= {
    "a_gan_that_is_interrupted_between_its_optimizers": (
        partial(of_a_gan, between="cell: ends"),
        {"steps": 7},
    ),
    "a_gan_that_is_read_between_its_optimizers": (
        partial(of_a_gan, between="cell: flush"),
        {"steps": 7},
    ),
}


@CASES.case(steps=3)
def tried_out_before_it_trains(toy):
    model, optimizer = training()
    model(torch.ones(8, 8)).sum().backward()
    toy.tracker.tell("cell: ends")
    fit(model, optimizer, loader())


def fit_both(one, first, other, second, steps):
    for (x,) in loader(steps):
        one(x).sum().backward()
        first.step()
        other(x).sum().backward()
        second.step()


def told(toy):
    return {
        "steps": toy.tracker.meter.steps,
        "anew": toy.anew,
        "asides": toy.asides,
        "failures": toy.failures,
        "samples": sorted({record.samples for record in toy.records}),
        "why": [why for why, _ in toy.asides],
        "found": toy.founds or [""],
    }


if __name__ == "__main__":
    CASES.main(told)
