"""What a training does between its steps: evaluation, checkpoints, or nothing of the kind."""

from gpudash.hooks.asides import Asides


def trained(loader="train"):
    asides = Asides()
    asides.fetches(loader)
    asides.learns()
    asides.border()
    return asides


def test_batches_of_another_loader_are_an_evaluation_from_the_second_on():
    asides = trained()
    assert not asides.fetches("held out")
    assert asides.fetches("held out")
    assert asides.why == "evaluation"


def test_one_batch_of_another_loader_is_an_evaluation_once_the_training_goes_on_with_its_own():
    asides = trained()
    asides.fetches("held out")
    assert asides.fetches("train")


def test_the_same_loader_before_the_trainings_own_again_makes_a_step_with_it():
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


def test_a_loader_that_is_used_up_each_time_is_an_evaluation_each_time():
    asides = trained()
    for _ in range(3):
        asides.fetches("held out")
        asides.exhausts("held out")
        assert asides.fetches("train")
        asides.trains()
        asides.learns()
        asides.border()


def test_a_new_loader_each_epoch_is_none():
    asides = trained()
    assert not asides.fetches("new train")
    asides.trains()
    asides.learns()
    asides.border()
    assert not asides.fetches("new train")
    assert asides.why is None


def test_a_call_that_cannot_train_is_an_evaluation_until_the_training_calls():
    asides = trained()
    assert asides.calls()
    assert not asides.calls()  # the same one
    asides.trains()
    assert asides.why is None


def test_a_call_that_cannot_train_within_a_step_is_part_of_it():
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


def test_what_is_evaluated_is_not_taken_to_be_trained_on():
    asides = trained()
    for _ in range(2):
        asides.fetches("held out")
        asides.calls()
    asides.fetches("train")
    asides.learns()
    assert not asides.is_trained_on("held out")


def test_a_file_saved_between_steps_is_a_checkpoint_and_no_other():
    asides = trained()
    assert asides.saves()
    asides.saved()
    assert asides.why is None
    assert not asides.fetches("train")
    asides.learns()
    assert not asides.saves()


def test_what_evaluates_after_a_checkpoint_is_an_evaluation():
    asides = trained()
    assert asides.saves()
    asides.saved()
    assert asides.calls()
    assert asides.why == "evaluation"
