"""Which optimizer steps make one training step, and how early its end is known."""

from itertools import cycle, islice

import pytest

from gpudash.script.optimizer_rounds import Begun, Ended, Rounds


def ends_of(optimizers, expected="", *, fed=True):
    """Return where steps end: `|` if known at once, `¦` if known when the next one begins.

    A space in `optimizers` is the arrival of a batch.
    """
    rounds, ends, afresh = Rounds(), [], True
    met = set()
    for optimizer in optimizers:
        if optimizer == " ":
            afresh = True
            continue
        begun = rounds.begins(optimizer, afresh=afresh if fed else None)
        if begun is Begun.HAD_ENDED:
            ends.append("¦")
        if begun is Begun.ONE_MORE:
            ends.append("+")
        if not met:
            for other in expected:
                rounds.expect(other)
        met.add(optimizer)
        ends.append(optimizer)
        afresh = False
        if rounds.ends() is Ended.HERE:
            ends.append("|")
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
    rounds = Rounds()
    for _ in range(3):
        rounds.begins("A", afresh=True)
        assert rounds.ends() is Ended.HERE
    for optimizer in "AB":  # in one backward pass
        assert rounds.begins(optimizer, afresh=True) is Begun.GOES_ON
    assert rounds.ends() is Ended.HERE
    rounds.begins("A", afresh=True)
    assert rounds.ends() is Ended.MAYBE  # B is due


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
    rounds = Rounds()
    for optimizer in "DGDG":
        rounds.begins(optimizer, afresh=True)
        rounds.ends()
    rounds.forget("G")
    rounds.begins("D", afresh=True)
    assert rounds.ends() is Ended.HERE


def test_a_late_optimizer_without_a_new_batch_belongs_to_the_step_before():
    ends = ends_of("D D D DG DG DG DG")
    assert ends == "D|D|D|D|GDG|DG|DG|"


def test_many_optimizers_within_one_backward_pass_end_one_step():
    rounds = Rounds()
    for step in range(3):
        for parameter in range(5):
            rounds.begins(parameter, afresh=True)
        assert rounds.ends() is Ended.HERE, step


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
