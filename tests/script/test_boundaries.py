"""Which optimizer steps make one training step, and how early its end is known."""

import random
from itertools import cycle, islice

import pytest

from gpudash.script.boundaries import SHAPES, Boundaries


def ends_of(optimizers, expected="", *, fed=True, evaluates=False):
    """Return where steps end: `|` if known at once, `¦` if known when the next one begins.

    A space in `optimizers` is the arrival of a batch. `evaluates`: an evaluation follows.
    """
    boundaries, ends, afresh = Boundaries(), [], True
    met = set()
    for optimizer in optimizers:
        if optimizer == " ":
            afresh = True
            continue
        begun = boundaries.update_begins(optimizer, afresh=afresh if fed else None)
        if begun == "had ended":
            ends.append("¦")
        if begun == "one more":
            ends.append("+")
        if not met:
            for other in expected:
                boundaries.expect(other)
        met.add(optimizer)
        ends.append(optimizer)
        afresh = False
        if boundaries.update_ends() == "ends":
            ends.append("|")
    if evaluates and boundaries.feed("no more comes") == "had ended":
        ends.append("¦")
    return "".join(ends)


FED = {
    "a single optimizer ends each step at once": ("A A A", "", "A|A|A|"),
    "it makes a step each time, whatever the batch": (" AAAA", "", "A|A|A|A|"),
    "two optimizers present from the start end a step together": (
        "DG DG DG",
        "DG",
        "DG|DG|DG|",
    ),
    "one that steps again ends a step, as is known once it is usual": (
        "D D D D DG " * 4,
        "DG",
        "D|D|D|D|DG|D|D|D|D|DG|",
    ),
    "steps without a rare optimizer end at once": (
        " ".join(["C", "CA"] * 6),
        "CA",
        "C|CA|C|CA|",
    ),
    "one that never steps is awaited only in the first step": ("A A A", "AB", "A¦A|A|"),
    "a late one without a new batch belongs to the step before": (
        "D D D DG DG DG DG",
        "",
        "D|D|D|D|GDG|DG|DG|",
    ),
    "one may step twice in a row on a batch": (" DGG DGG DGG DGG", "DG", "DG|GDGG|DGG|DGG|"),
    "one that steps first may do so too": (" DDDG DDDG DDDG", "DG", "DDDG|DDDG|DDDG|"),
}
UNFED = {
    "a late optimizer belongs to the step before": ("AAABAABA", "B", "A¦A|A|BA¦AB|A|"),
    "one that steps again makes steps of its own": ("AAABBB", "B", "A¦A|A|B+B¦B"),
    "one that was not expected begins a step": ("AAABB", "", "A|A|A|B¦B"),
    "a training after the other counts its own steps": (
        "AAAABBBBBB",
        "",
        "A|A|A|A|B¦B¦B¦B|B|B|",
    ),
}
ENDS = [(*one, fed) for cases, fed in ((FED, True), (UNFED, False)) for one in cases.values()]


@pytest.mark.parametrize(("optimizers", "expected", "ends", "fed"), ENDS, ids=[*FED, *UNFED])
def test_where_steps_end(optimizers, expected, ends, fed):
    assert ends_of(optimizers, expected, fed=fed).endswith(ends)


@pytest.mark.parametrize(
    ("optimizers", "expected", "steps"),
    [
        ("D D D D DG " * 4, "DG", {4 * 5}),
        ("A A A A B B B B B B", "", {10}),  # a training after the other
        (" A A A A" + "B" * 20, "", range(4 + 19, 25)),  # without a batch of its own
        (list(islice(cycle("AABABBA"), 100)), "AB", {56, 57, 58}),
        (" DGG DGG DG DG DGG DGG DGG", "DG", {7}),  # how often one steps on a batch changes
        (" DGDGDG", "DG", {3}),  # they take turns on one batch
        (" " + "A" * 100, "AB", range(80, 101)),  # so many on a batch are of a training each
    ],
)
def test_how_many_steps_there_are(optimizers, expected, steps):
    ends = ends_of(optimizers, expected)
    assert sum(ends.count(one) for one in "|¦+") in steps


def step(boundaries, optimizers, *, afresh=True):
    """Have each of these step; return what the end of each update is."""
    ends = []
    for optimizer in optimizers:
        boundaries.update_begins(optimizer, afresh=afresh)
        ends.append(boundaries.update_ends())
    return ends


@pytest.fixture
def boundaries():
    return Boundaries()


def test_a_second_optimizer_may_step_in_the_middle_of_a_single_ones_step(boundaries):
    assert step(boundaries, "AAA") == ["ends"] * 3
    for optimizer in "AB":  # in one backward pass
        assert boundaries.update_begins(optimizer, afresh=True) == "goes on"
    assert boundaries.update_ends() == "ends"
    assert step(boundaries, "A") == ["may end"]  # B is due


def test_an_optimizer_that_is_gone_is_waited_for_no_longer(boundaries):
    step(boundaries, "DGDG")
    boundaries.forget("G")
    assert step(boundaries, "D") == ["ends"]


def training(drawn):
    """Return the names of optimizers, and those that step on each of 40 batches, in order.

    The first steps on each batch. Others step on each or now and then, and some of those on each
    step several times in a row.
    """
    names = "ABCD"[: drawn.randint(1, 4)]
    every = [1, *(drawn.randint(1, 6) for _ in names[1:])]
    times = [drawn.choice((1, 2, 5)) if len(names) > 1 and one == 1 else 1 for one in every]
    order = [0, *drawn.sample(range(1, len(names)), len(names) - 1)]
    return names, [
        "".join(names[one] * times[one] for one in order if batch % every[one] == 0)
        for batch in range(40)
    ]


@pytest.mark.parametrize("seed", range(11))
def test_330_random_trainings_have_as_many_steps_as_batches(seed):
    drawn = random.Random(seed)
    for _ in range(30):
        names, batches = training(drawn)
        ends = ends_of(" ".join(batches), names, evaluates=True)
        assert sum(ends.count(one) for one in "|¦+") == len(batches)


def test_what_is_in_no_row_changes_nothing(boundaries):
    boundaries.feed("declares")
    assert boundaries.update_begins("A", afresh=True) == "goes on"
    assert (boundaries.feed("pass"), boundaries.state) == ("goes on", "declared")


def test_no_two_shapes_contradict_each_other():
    pairs = [(state, symbol) for row in SHAPES for state in row.states for symbol in row.symbols]
    assert len(pairs) == len(set(pairs))


def test_passes_without_an_optimizer_are_steps_until_one_steps(boundaries):
    assert boundaries.feed("pass") == "goes on"
    assert [boundaries.feed(symbol) for symbol in ("passes alone", "pass")] == ["ends", "ends"]
    assert (step(boundaries, "A"), boundaries.feed("pass")) == (["ends"], "goes on")


@pytest.mark.parametrize("known", ["", "A", "AB"])
def test_an_optimizer_that_steps_after_such_a_pass_belongs_to_its_step(boundaries, known):
    step(boundaries, known * 3)
    boundaries.feed("no more comes")
    assert boundaries.feed("passes alone") == "ends"
    assert step(boundaries, "A", afresh=False) == ["late"]
    said = []
    for _ in range(3):
        said += [boundaries.feed("pass"), boundaries.update_begins("A", afresh=None)]
        said.append(boundaries.update_ends())
    said.append(boundaries.feed("no more comes"))
    assert len([one for one in said if one in {"ends", "had ended"}]) == 3


def test_an_optimizer_that_is_due_is_awaited_no_longer_once_nothing_more_can_come(boundaries):
    boundaries.update_begins("D", afresh=True)
    boundaries.expect("G")
    assert boundaries.update_ends() == "may end"
    assert boundaries.feed("no more comes") == "had ended"
    assert boundaries.feed("no more comes") == "goes on"
    assert step(boundaries, "G", afresh=False) == ["late"]
