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


def test_without_a_loader_a_late_optimizer_belongs_to_the_step_before():
    assert ends_of("AAABAABA", "B", fed=False) == "A¦A|A|BA¦AB|A|"


def test_without_a_loader_a_late_optimizer_that_steps_again_makes_steps_of_its_own():
    assert ends_of("AAABBB", "B", fed=False) == "A¦A|A|B+B¦B"


def test_without_a_loader_an_optimizer_that_was_not_expected_begins_a_step():
    assert ends_of("AAABB", fed=False) == "A|A|A|B¦B"


def test_a_single_optimizer_ends_each_step_at_once():
    assert ends_of("A A A") == "A|A|A|"


def test_a_second_optimizer_may_step_in_the_middle_of_a_single_ones_step():
    boundaries = Boundaries()
    for _ in range(3):
        boundaries.update_begins("A", afresh=True)
        assert boundaries.update_ends() == "ends"
    for optimizer in "AB":  # in one backward pass
        assert boundaries.update_begins(optimizer, afresh=True) == "goes on"
    assert boundaries.update_ends() == "ends"
    boundaries.update_begins("A", afresh=True)
    assert boundaries.update_ends() == "may end"  # B is due


def test_two_optimizers_present_from_the_start_end_a_step_together():
    assert ends_of("DG DG DG", "DG") == "DG|DG|DG|"


def test_an_optimizer_that_steps_again_ends_a_step():
    ends = ends_of("D D D D DG " * 4, "DG").replace("|", "¦")
    assert ends.count("¦") == 4 * 5
    assert ends.endswith("D¦D¦D¦D¦DG¦" * 2)


def test_steps_without_a_rare_optimizer_end_at_once():
    ends = ends_of(" ".join(["C", "CA"] * 6), "CA")
    assert ends.endswith("C|CA|C|CA|")


def test_an_optimizer_that_never_steps_is_awaited_only_in_the_first_step():
    assert ends_of("A A A", "AB") == "A¦A|A|"


@pytest.mark.parametrize("fed", [False, True])
def test_a_second_training_counts_its_own_steps(fed):
    ends = ends_of("A A A A B B B B B B", fed=fed)
    assert ends.count("|") + ends.count("¦") == 10


def test_an_optimizer_that_is_gone_is_waited_for_no_longer():
    boundaries = Boundaries()
    for optimizer in "DGDG":
        boundaries.update_begins(optimizer, afresh=True)
        boundaries.update_ends()
    boundaries.forget("G")
    boundaries.update_begins("D", afresh=True)
    assert boundaries.update_ends() == "ends"


def test_a_late_optimizer_without_a_new_batch_belongs_to_the_step_before():
    ends = ends_of("D D D DG DG DG DG")
    assert ends == "D|D|D|D|GDG|DG|DG|"


def test_many_optimizers_within_one_backward_pass_end_one_step():
    boundaries = Boundaries()
    for step in range(3):
        for parameter in range(5):
            boundaries.update_begins(parameter, afresh=True)
        assert boundaries.update_ends() == "ends", step


def test_the_number_of_steps_never_depends_on_predicted_ends():
    shape = list(islice(cycle("AABABBA"), 100))
    literal, seen = 0, set()
    for optimizer in shape:
        if optimizer in seen:
            literal += 1
            seen = set()
        seen.add(optimizer)
    ends = ends_of(shape, "AB", fed=True)
    assert abs(ends.count("|") + ends.count("¦") - literal) <= 1


def test_an_optimizer_may_step_twice_in_a_row_on_a_batch():
    assert ends_of(" DGG DGG DGG DGG", "DG") == "DG|GDGG|DGG|DGG|"


def test_one_that_steps_first_may_do_so_too():
    assert ends_of(" DDDG DDDG DDDG", "DG") == "DDDG|DDDG|DDDG|"


def test_how_often_it_steps_on_a_batch_may_change():
    ends = ends_of(" DGG DGG DG DG DGG DGG DGG", "DG")
    assert ends.count("|") + ends.count("¦") == 7


def test_optimizers_that_take_turns_on_one_batch_make_a_step_each_turn():
    assert ends_of(" DGDGDG", "DG").count("|") == 3


def test_a_single_optimizer_makes_a_step_each_time_whatever_the_batch():
    assert ends_of(" AAAA") == "A|A|A|A|"


def test_after_many_steps_on_a_batch_each_is_a_step_of_the_training():
    ends = ends_of(" " + "A" * 100, "AB")
    assert ends.count("|") + ends.count("¦") >= 80


def test_a_training_after_the_other_without_a_batch_of_its_own_counts_its_steps():
    ends = ends_of(" A A A A" + "B" * 20)
    assert ends.count("|") + ends.count("¦") + ends.count("+") >= 4 + 19


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


def test_what_is_in_no_row_changes_nothing():
    boundaries = Boundaries()
    boundaries.feed("declares")
    assert boundaries.update_begins("A", afresh=True) == "goes on"
    assert (boundaries.feed("pass"), boundaries.state) == ("goes on", "declared")


def test_no_two_shapes_contradict_each_other():
    pairs = [(state, symbol) for row in SHAPES for state in row.states for symbol in row.symbols]
    assert len(pairs) == len(set(pairs))


def test_passes_without_an_optimizer_are_steps_until_one_steps():
    boundaries = Boundaries()
    assert boundaries.feed("pass") == "goes on"
    assert [boundaries.feed(symbol) for symbol in ("passes alone", "pass")] == ["ends", "ends"]
    boundaries.update_begins("A", afresh=True)
    assert (boundaries.update_ends(), boundaries.feed("pass")) == ("ends", "goes on")


@pytest.mark.parametrize("known", ["", "A", "AB"])
def test_an_optimizer_that_steps_after_such_a_pass_belongs_to_its_step(known):
    boundaries = Boundaries()
    for optimizer in known * 3:
        boundaries.update_begins(optimizer, afresh=True)
        boundaries.update_ends()
    boundaries.feed("no more comes")
    assert boundaries.feed("passes alone") == "ends"
    boundaries.update_begins("A", afresh=False)
    assert boundaries.update_ends() == "late"
    said = []
    for _ in range(3):
        said += [boundaries.feed("pass"), boundaries.update_begins("A", afresh=None)]
        said.append(boundaries.update_ends())
    said.append(boundaries.feed("no more comes"))
    assert len([one for one in said if one in {"ends", "had ended"}]) == 3


def test_an_optimizer_that_is_due_is_awaited_no_longer_once_nothing_more_can_come():
    boundaries = Boundaries()
    boundaries.update_begins("D", afresh=True)
    boundaries.expect("G")
    assert boundaries.update_ends() == "may end"
    assert boundaries.feed("no more comes") == "had ended"
    assert boundaries.feed("no more comes") == "goes on"
    boundaries.update_begins("G", afresh=False)
    assert boundaries.update_ends() == "late"
