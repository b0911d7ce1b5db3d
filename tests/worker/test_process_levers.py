"""The levers of the process that trains, in a script and in a workload: the same in both."""

import gc

import pytest
import torch

from gpudash.process_levers import OF_PROCESS
from gpudash.training.commanded import Refusal
from gpudash.worker.workload_training import WorkloadLevers
from tests.script.levers.scripts import levers as of_script
from tests.script.levers.scripts import move, refuses
from tests.warm import python
from tests.worker.in_process import ENTRY, SETTINGS
from workloads.levers import AUTO
from workloads.training import Training


def of_workload():
    return WorkloadLevers(Training(ENTRY, SETTINGS, torch.device("cpu")), "fake", {})


@pytest.fixture(params=[of_script, of_workload])
def levers(request):
    gc.unfreeze()
    made = request.param()
    yield made
    made.restore()
    gc.unfreeze()


def test_they_begin_as_the_process_is(levers):
    before = gc.get_threshold(), torch.get_num_threads()
    assert {levers.settings[one.name] for one in OF_PROCESS} == {"own"}
    assert (gc.get_threshold(), torch.get_num_threads()) == before


def test_frozen_objects_are_not_looked_at_until_it_is_put_back(levers):
    move(levers, gc="frozen")
    assert gc.get_freeze_count()
    move(levers, gc="own")
    assert not gc.get_freeze_count()


def test_rare_collections_are_a_hundred_times_rarer_and_never_off(levers):
    youngest, *others = gc.get_threshold()
    move(levers, gc="frozen")
    move(levers, gc="rare")
    assert gc.get_threshold() == (100 * youngest, *others)
    assert gc.isenabled()
    assert not gc.get_freeze_count()
    levers.restore()
    assert gc.get_threshold() == (youngest, *others)


def test_threads_are_those_of_an_operator_and_come_back(levers):
    own = torch.get_num_threads()
    move(levers, threads="4")
    assert torch.get_num_threads() == 4
    move(levers, threads="1")
    assert torch.get_num_threads() == 1
    move(levers, threads="own")
    assert torch.get_num_threads() == own


def test_a_collector_that_the_training_has_switched_off_stays_off(levers):
    gc.disable()
    try:
        refuses(levers, "the training has switched the garbage collector off", gc="rare")
    finally:
        gc.enable()


def test_what_the_training_has_frozen_itself_stays_frozen(levers):
    gc.freeze()
    move(levers, gc="frozen")
    move(levers, gc="own")
    assert gc.get_freeze_count()


def test_what_python_itself_has_frozen_does_not_keep_the_rest_frozen():
    """As Python 3.12 does before the first line."""
    script = """
import gc
gc.freeze()
from gpudash.levers.process import ProcessLevers
levers = ProcessLevers()
levers.apply({"gc": "frozen"})
levers.apply({})
print(gc.get_freeze_count())
"""
    assert python("-c", script).stdout == "0\n"


def test_a_value_that_there_is_not_is_refused_with_the_valid_ones(levers):
    with pytest.raises(Refusal, match="valid: own, frozen, rare"):
        levers.resolve({"gc": "off"})


def test_a_training_begins_with_the_values_that_it_is_started_with():
    training = Training(ENTRY, SETTINGS, torch.device("cpu"))
    levers, own = WorkloadLevers(training, "fake", {"threads": "1"}), torch.get_num_threads()
    assert (levers.settings["threads"], own) == ("1", 1)
    move(levers, threads="own")


def test_each_value_may_be_a_side_of_an_ab():
    """`auto` may not: it stands for another one."""
    assert all(AUTO not in one.values for one in OF_PROCESS)
