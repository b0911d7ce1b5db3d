import gc
import multiprocessing
import random
from itertools import groupby, islice
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler

from gpudash.levers.offers import canonical
from gpudash.training.commanded import Refusal
from tests.script.levers.scripts import (
    Numbers,
    begun,
    found,
    levers,
    loader,
    move,
    refuses,
)

PATTERNS = {
    "0 to 2": (0, [2]),
    "2 to 0": (2, [0]),
    "1 to 3": (1, [3]),
    "0 to 1 to 0": (0, [1, 0]),
}


class _Backwards(Sampler):
    def __iter__(self):
        yield from reversed(range(48))

    def __len__(self):
        return 48


def seeded():
    return torch.Generator().manual_seed(5)


LOADERS = {
    "in order": dict,
    "shuffled by the script's own numbers": lambda: {"shuffle": True},
    "shuffled by a generator": lambda: {"shuffle": True, "generator": seeded()},
    "with replacement": lambda: {
        "sampler": RandomSampler(range(48), replacement=True, generator=seeded())
    },
    "own sampler": lambda: {"sampler": _Backwards()},
    "own batches": lambda: {
        "batch_size": 1,
        "batch_sampler": BatchSampler(_Backwards(), 2, drop_last=True),
    },
    "no batches": lambda: {"batch_size": None, "sampler": [3, 1, 4, 1, 5, 9, 2, 6] * 3},
}


class Reader:
    """A script that reads some epochs, while levers are moved after so many batches each.

    It may leave each epoch after its `most` batches, and keep the iterators that it has had.
    """

    def __init__(  # what a script may do
        self, options, moves=(), redirects=None, *, epochs=2, every=3, most=None, keeps=False
    ):
        random.seed(1)
        torch.manual_seed(1)
        self.loader = loader(**options)
        self.batches, self.workers, self.moved = [], [], None
        waiting, self.kept = list(moves), []
        for _ in range(epochs):
            iterator = iter(self.loader)
            self.kept += [iterator] * keeps
            for at, (indices, workers) in enumerate(islice(iterator, most), 1):
                self.batches.append(indices.tolist() if torch.is_tensor(indices) else indices)
                self.workers.append(int(torch.as_tensor(workers).max()))
                if redirects is not None and self.moved is None:
                    self.moved = levers(redirects=redirects, loader=self.loader, iterator=iterator)
                if waiting and at % every == 0:
                    move(self.moved, **waiting.pop(0))
            del iterator
        self.random = torch.rand(3).tolist(), random.random()


CASES = [
    *((kind, "0 to 1 to 0") for kind in LOADERS),
    *(("shuffled by the script's own numbers", pattern) for pattern in list(PATTERNS)[:-1]),
]


@pytest.mark.parametrize(("kind", "pattern"), CASES)
def test_another_number_of_workers_makes_the_same_batches_in_the_same_order(
    redirects, kind, pattern
):
    make, (begin, switches) = LOADERS[kind], PATTERNS[pattern]
    changes = [{"num_workers": str(workers)} for workers in switches]
    read = Reader({**make(), "num_workers": begin}, changes, redirects)
    other = Reader({**make(), "num_workers": begin})
    assert (read.batches, read.random) == (other.batches, other.random)
    of_an_epoch = read.workers[: len(read.workers) // 2]
    assert [workers for workers, _ in groupby(of_an_epoch)] == [begin, *switches]


def test_persistent_workers_are_replaced_by_persistent_workers(redirects):
    options = {"num_workers": 1, "persistent_workers": True, "shuffle": True}
    read = Reader(options, [{"num_workers": "2"}, {"num_workers": "3"}], redirects, epochs=3)
    other = Reader(options, epochs=3)
    assert (read.batches, read.random) == (other.batches, other.random)
    assert set(read.workers) == {1, 2, 3}
    assert len(multiprocessing.active_children()) <= 4  # of `read` and of `other`
    with pytest.raises(Refusal, match="valid: a whole number from 1 to 256"):
        read.moved.resolve({"num_workers": "0"})
    del read, other


@pytest.mark.parametrize(
    ("moves", "how"),
    [("2", {"most": 5}), ("232", {"every": 16, "keeps": True})],
    ids=["left early and begun again", "whose iterator is still held"],
)
def test_a_persistent_loaders_next_epoch_is_the_same_after_one(redirects, moves, how):
    options = {"num_workers": 1, "persistent_workers": True, "shuffle": True}
    changes = [{"num_workers": workers} for workers in moves]
    read = Reader(options, changes, redirects, epochs=3, **how)
    other = Reader(options, epochs=3, **how)
    assert (read.batches, {*read.workers}) == (other.batches, {1, *map(int, moves)})
    del read, other


def test_an_iterator_held_over_many_epochs_is_redirected(redirects):
    def cycle(data):
        while True:
            yield from data

    def read(*changes):
        torch.manual_seed(1)
        data = loader(shuffle=True)
        batches = cycle(data)
        first = next(batches)
        held = batches.gi_yieldfrom
        moved = levers(redirects=redirects, loader=data, iterator=held)
        del held
        read = [first[0].tolist()]
        for at in range(60):
            if changes and at == 5:
                move(moved, **changes[0])
            read.append(next(batches)[0].tolist())
        workers = moved.settings["num_workers"], data.num_workers
        batches.close()
        return read, workers

    moved, workers = read({"num_workers": "2"})
    assert workers == ("2", 2)
    assert moved == read()[0]


def test_prefetched_batches_are_served_first(redirects):
    read = Reader(
        {"num_workers": 2, "prefetch_factor": 2}, [{"num_workers": "0"}], redirects, epochs=1
    )
    assert read.workers == [2] * (3 + 4) + [0] * (24 - 7)


def test_restore_gives_the_loader_its_own_settings_back(redirects):
    data, iterator, moved = begun(redirects, num_workers=1, prefetch_factor=3)
    before = dict(vars(data))
    move(moved, num_workers="2", prefetch_factor="4")
    assert (data.num_workers, data.prefetch_factor) == (2, 4)
    moved.restore()
    assert vars(data) == before
    assert len(list(iterator)) == 24
    assert moved.settings["prefetch_factor"] == "3"


@pytest.mark.parametrize("read", [list, lambda it: [next(it) for _ in range(24)]])
def test_between_epochs_a_worker_is_tried_on_a_batch_that_is_dropped(redirects, read, tmp_path):
    tried = {"worker_init_fn": lambda worker: (tmp_path / str(worker)).touch()}
    data, iterator, moved = begun(redirects, shuffle=True, **tried)
    read(iterator)
    random_state = torch.get_rng_state()
    move(moved, num_workers="2")
    assert torch.equal(torch.get_rng_state(), random_state)
    assert (tmp_path / "1").exists() is (read is not list)  # the script may still ask
    assert list(iterator) == []
    assert {int(workers.max()) for _, workers in data} == {2}


@pytest.mark.parametrize("kind", ["own sampler", "own batches"])
def test_between_epochs_with_an_unknown_sampler_workers_cannot_be_tried(redirects, kind):
    data, iterator, moved = begun(redirects, **LOADERS[kind]())
    list(iterator)
    refuses(moved, "tried out on the epoch's next batch, and here is none", num_workers="2")
    assert data.num_workers == 0


class _AtHome(Numbers):
    """A dataset that does not work in another process."""

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info():
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return super().__getitem__(index)


class _Unsendable(Numbers):
    def __getitem__(self, index):
        return index, lambda: None


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (_AtHome, "RuntimeError: Cannot re-initialize CUDA in forked subprocess"),
        (_Unsendable, "loader workers made no batch in 1 s"),
    ],
)
def test_a_dataset_that_fails_in_a_worker_refuses_the_change_and_reading_goes_on(
    redirects, monkeypatch, dataset, why
):
    monkeypatch.setattr("gpudash.levers.handover.TRIAL_S", 1.0)
    data, iterator, moved = begun(redirects, DataLoader(dataset(), collate_fn=list))
    next(iterator)
    refuses(moved, why, num_workers="2")
    assert [batch[0][0] for batch in iterator] == list(range(1, 48))
    refuses(moved, why, num_workers="2")
    assert data.num_workers == 0


def test_an_abandoned_epoch_leaves_no_workers(redirects):
    _data, iterator, moved = begun(redirects)
    next(iterator)
    move(moved, num_workers="2")
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del iterator
    assert not redirects


def test_more_prefetching_asks_for_more_batches_once_those_asked_for_are_used_up(redirects):
    asked = []

    class Noting(_Backwards):
        def __iter__(self):
            for index in super().__iter__():
                asked.append(index)
                yield index

    ahead = {"num_workers": 2, "prefetch_factor": 1}
    _data, iterator, moved = begun(redirects, sampler=Noting(), batch_size=1, **ahead)
    next(iterator)
    move(moved, prefetch_factor="5")
    counts = [len(asked), *((next(iterator), len(asked))[1] for _ in range(3))]
    assert counts == [3, 3, 3, 14]
    del iterator


def test_a_failing_dataset_fails_as_in_the_script(redirects):
    class Failing(Numbers):
        def __getitem__(self, index):
            if index == 40:
                raise ValueError("index 40 is unreadable")
            return super().__getitem__(index)

    _data, iterator, moved = begun(redirects, DataLoader(Failing(), batch_size=2))
    next(iterator)
    move(moved, num_workers="2")
    with pytest.raises(ValueError, match="index 40 is unreadable"):
        list(iterator)
    del iterator


NONE_LEFT = Mock(side_effect=OSError("no process is left"))


def test_a_loader_that_can_start_no_workers_goes_on_as_before(redirects, monkeypatch):
    data, iterator, moved = begun(redirects)
    first = next(iterator)
    before = dict(vars(data))
    monkeypatch.setattr(multiprocessing.Process, "start", NONE_LEFT)
    refuses(moved, "OSError: no process is left", num_workers="2")
    assert vars(data) == before
    assert [first[0].tolist(), *(b[0].tolist() for b in iterator)] == [
        [i, i + 1] for i in range(0, 48, 2)
    ]


def test_restore_without_a_free_process_applies_to_the_next_epoch(redirects, monkeypatch):
    data, iterator, moved = begun(redirects, num_workers=1)
    move(moved, num_workers="0")
    monkeypatch.setattr(multiprocessing.Process, "start", NONE_LEFT)
    moved.restore()
    assert data.num_workers == 1
    assert len(list(iterator)) == 24


class _Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


class _OwnLoader(DataLoader):
    def _get_iterator(self):
        return iter([])


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (dict, "no DataLoader was seen"),
        (lambda: _fed(DataLoader(_Stream())), "the loader is over an IterableDataset"),
        (lambda: _fed(_OwnLoader(range(9))), "_OwnLoader makes its iterators itself"),
    ],
)
def test_refusals_name_their_reason(facts, why):
    kept = facts()
    refusals = {offer.name: offer.refusal for offer in levers(**kept).offers}
    assert refusals["num_workers"] == refusals["prefetch_factor"] == why


def _fed(data):
    return {"loader": data, "iterator": DataLoader(range(3)).__iter__()}


class TwoByTwo:
    """Batches of two, chosen by the script itself."""

    batch_size = 2

    def __iter__(self):
        return iter([[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"batch_size": 3}, "3"),
        ({"batch_size": 1, "batch_sampler": TwoByTwo()}, "2"),
        ({"batch_size": 1, "batch_sampler": [[0, 1], [2, 3, 4]]}, "–"),
        ({"batch_size": None}, "–"),
    ],
    ids=["loader", "batch sampler", "own batches", "no batches"],
)
def test_the_batch_size_is_the_loaders_where_the_loader_has_one(options, size):
    _data, _iterator, moved = begun(**options)
    (offer,) = (one for one in moved.offers if one.name == "batch_size")
    assert (moved.settings["batch_size"], offer.default) == (size, size)
    refuses(moved, "the script sets its batch size itself", batch_size="8")


def test_pin_memory_needs_a_gpu():
    assert offered(loader(), None)["pin_memory"].refusal == "needs a GPU"


def test_prefetching_needs_workers():
    _data, _iterator, moved = begun()
    refuses(moved, "prefetch_factor: there are no loader workers", prefetch_factor="4")
    resolved = moved.resolve({"prefetch_factor": "4", "num_workers": "02"})
    assert (resolved["prefetch_factor"], resolved["num_workers"]) == ("4", "2")


def test_both_go_back_together_to_a_script_without_workers(redirects):
    _data, iterator, moved = begun(redirects)
    next(iterator)
    start = moved.settings
    move(moved, num_workers="2", prefetch_factor="4")
    assert moved.resolve(start) == start


def test_another_loader_has_its_own_values_and_the_first_one_is_restored(redirects):
    first, _iterator, moved = begun(redirects, num_workers=1)
    second = loader()
    move(moved, num_workers="3")
    moved.update(found(loader=second, iterator=iter(second)))
    assert first.num_workers == 1
    assert moved.settings["num_workers"] == "0"


def test_many_switches_in_an_epoch_leave_nothing_open(redirects):
    _data, iterator, moved = begun(redirects, batch_size=1)
    open_files = []
    for at in range(6):
        next(iterator)
        move(moved, num_workers=str(at % 2))
        next(iterator)
        gc.collect()
        open_files.append(len(list(Path("/proc/self/fd").iterdir())))
    assert open_files[-2] == open_files[2]
    del iterator


def offered(loaded, redirects):
    """Return the offers while an epoch is in progress."""
    _data, _iterator, moved = begun(redirects, loaded)
    return {one.name: one for one in moved.offers}


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_would_run_the_script_again_are_offered_only_if_it_uses_workers(
    redirects, method
):
    loaded = loader(num_workers=1, multiprocessing_context=method)
    loaded.num_workers = 0
    refusal = offered(loaded, redirects)["num_workers"].refusal
    assert refusal == f"each loader worker would run the script again (start method {method})"
    forking = loader(num_workers=1, multiprocessing_context="fork")
    assert offered(forking, redirects)["num_workers"].refusal is None


def test_offering_workers_does_not_fix_the_start_method(redirects, monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", asked := Mock(return_value=None))
    assert offered(loader(), redirects)["num_workers"].refusal is None
    assert {call.kwargs["allow_none"] for call in asked.call_args_list} == {True}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"timeout": 60}, "its timeout needs loader workers"),
        ({"persistent_workers": True}, "persistent_workers=True needs loader workers"),
    ],
)
def test_a_loader_that_needs_workers_says_why(redirects, option, why):
    offers = offered(loader(num_workers=1, **option), redirects)
    with pytest.raises(Refusal, match=rf"'0' is not valid; valid: .* from 1 to 256 \({why}\)"):
        canonical(offers["num_workers"], "0")
    assert offers["prefetch_factor"].bound == offers["pin_memory"].bound == ""
