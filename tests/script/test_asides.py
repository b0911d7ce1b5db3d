"""Which events between steps are an evaluation or a checkpoint, and which are part of a step."""

from gpudash.script.interruptions import Asides


def trained(loader="train"):
    asides = Asides()
    asides.fetches(loader)
    asides.learns()
    asides.border()
    return asides


def test_two_batches_of_another_loader_are_an_evaluation():
    asides = trained()
    assert not asides.fetches("held out")
    assert asides.fetches("held out")
    assert asides.why == "evaluation"


def test_one_batch_of_another_loader_is_an_evaluation_once_training_resumes():
    asides = trained()
    asides.fetches("held out")
    assert asides.fetches("train")


def test_two_loaders_that_alternate_make_a_step_together():
    asides = trained()
    began = []
    for _ in range(3):
        asides.fetches("labelled")
        began.append(asides.fetches("train"))
        asides.trains()
        asides.learns()
        asides.border()
    assert began == [True, False, False]
    assert asides.is_trained_on("labelled")


def test_a_loader_that_is_exhausted_each_time_is_an_evaluation_each_time():
    asides = trained()
    for _ in range(3):
        asides.fetches("held out")
        asides.exhausts("held out")
        assert asides.fetches("train")
        asides.trains()
        asides.learns()
        asides.border()


def test_a_new_training_loader_each_epoch_is_no_evaluation():
    asides = trained()
    assert not asides.fetches("new train")
    asides.trains()
    asides.learns()
    asides.border()
    assert not asides.fetches("new train")
    assert asides.why is None


def test_a_call_without_gradients_is_an_evaluation_until_a_training_call():
    asides = trained()
    assert asides.calls()
    assert not asides.calls()  # the same one
    asides.trains()
    assert asides.why is None


def test_a_call_without_gradients_within_a_step_is_part_of_the_step():
    asides = trained()
    asides.trains()
    assert not asides.calls()


def test_a_script_that_acts_before_each_step_evaluates_nothing():
    asides = trained()
    assert asides.calls()
    for _ in range(3):
        asides.learns()
        asides.border()
        assert not asides.calls()
    asides.learns()
    asides.border()
    asides.learns()  # a step without
    asides.border()
    assert asides.calls()


def test_a_loader_that_was_evaluated_does_not_become_a_training_loader():
    asides = trained()
    for _ in range(2):
        asides.fetches("held out")
        asides.calls()
    asides.fetches("train")
    asides.learns()
    assert not asides.is_trained_on("held out")


def test_only_a_file_saved_between_steps_is_a_checkpoint():
    asides = trained()
    assert asides.saves()
    asides.saved()
    assert asides.why is None
    assert not asides.fetches("train")
    asides.learns()
    assert not asides.saves()


def test_an_evaluation_may_follow_a_checkpoint():
    asides = trained()
    assert asides.saves()
    asides.saved()
    assert asides.calls()
    assert asides.why == "evaluation"
