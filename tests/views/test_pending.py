from gpudash.views.pending import Pending

OFF = {"pipelined": "off", "batch_size": "8"}


def asked(*changes):
    pending = Pending()
    for one in changes:
        pending.ask(one)
    return pending


def test_what_was_asked_is_pending_until_it_is_answered():
    pending = asked({"batch_size": "16"})
    assert pending.beside(OFF) == {"batch_size": "16"}
    pending.answer({"batch_size": "16"})
    assert pending.beside(OFF) == {}


def test_a_later_wish_outlives_the_answer_to_an_earlier_one():
    pending = asked({"batch_size": "16"}, {"batch_size": "32"})
    pending.answer({"batch_size": "16"})
    assert pending.beside(OFF) == {"batch_size": "32"}


def test_one_answer_may_cover_several_changes():
    pending = asked({"batch_size": "16"}, {"pipelined": "on"}, {"batch_size": "32"})
    pending.answer({"batch_size": "32", "pipelined": "on"})
    assert pending.beside(OFF) == {}


def test_an_answer_in_other_words_still_answers():
    pending = asked({"model_scale": "auto"})
    pending.answer({"model_scale": "small"})
    assert pending.beside({"model_scale": "small"}) == {}


def test_what_is_in_force_already_is_not_pending():
    assert asked({"pipelined": "on"}, {"pipelined": "off"}).beside(OFF) == {}
