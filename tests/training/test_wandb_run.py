"""What is measured reaches the run that a script has open, and nothing of the script's moves."""

import sys
import threading
from types import ModuleType
from unittest.mock import Mock

import pytest

from gpudash.protocol.commands import Figures
from gpudash.protocol.session import Notice
from gpudash.training.wandb_run import MOST_WAITING, THREAD, WandbRun
from tests.waiting import until


class Wandb(ModuleType):
    """As W&B: a row is what was logged until a commit, and each commit takes a step."""

    def __init__(self):
        super().__init__("wandb")
        self.run, self.rows, self.row, self.axes = self, [], {}, []

    def define_metric(self, name, step_metric=None, *, hidden=False):
        self.axes.append((name, step_metric, hidden))

    def log(self, values, *, commit=True):
        self.row |= values
        if commit:
            self.rows.append(self.row)
            self.row = {}


@pytest.fixture
def opened(monkeypatch):
    """Return what has the script import W&B, and open a run."""

    def open_run():
        monkeypatch.setitem(sys.modules, "wandb", Wandb())
        return sys.modules["wandb"]

    return open_run


@pytest.fixture
def wandb(opened):
    return opened()


@pytest.fixture
def said():
    return []


@pytest.fixture
def open_run(said):
    """What figures are given to; at the end all that it has taken is logged."""
    made = WandbRun(said.append)
    yield made
    made.close()
    until(lambda: THREAD not in {one.name for one in threading.enumerate()})


def fails(*_, **__):
    raise RuntimeError("the disk is full\nwith details")


def figures(step=120):
    return Figures(
        step=step,
        values={"gpudash/step/steps_per_s": 12.5},
        texts={"gpudash/limit": "data"},
    )


def test_figures_join_the_row_that_the_script_logs_next_to_wandb(wandb, open_run, said):
    wandb.log({"loss": 2.0})
    open_run.take(figures())
    until(lambda: wandb.row)
    assert wandb.rows == [{"loss": 2.0}]  # no row, and so no step, of its own
    wandb.log({"loss": 1.0})
    ours = {"gpudash/step/steps_per_s": 12.5, "gpudash/limit": "data", "gpudash/step": 120}
    assert wandb.rows[1] == {"loss": 1.0, **ours}
    assert wandb.axes == [
        ("gpudash/step", None, True),
        ("gpudash/*", "gpudash/step", False),
    ]
    open_run.take(figures(step=130))
    until(lambda: wandb.row)
    assert wandb.row["gpudash/step"] == 130
    assert len(wandb.axes) == 2  # once a run
    wandb.run = None
    open_run.take(figures())
    assert said == []  # nothing of a run that the script has ended, either


def test_without_an_open_run_one_line_says_so_and_figures_go_there_once_it_has(
    opened, open_run, said
):
    open_run.take(figures())  # the script has not imported it
    wandb = opened()
    wandb.run = None
    open_run.take(figures())
    why = "W&B: the training has no run open; once it has, figures go there"
    assert said == [Notice(text=why, sink="wandb", hinders=True)]
    wandb.run = wandb
    open_run.take(figures())
    until(lambda: wandb.row)
    there = "W&B: the training has opened a run, and figures go there"
    assert said[1:] == [Notice(text=there, sink="wandb")]


ASKED = [
    ("the next figures", lambda open_run: open_run.take(figures())),
    ("a look", WandbRun.look),
    ("the end", lambda open_run: open_run.close(wait_s=60)),
]


@pytest.mark.parametrize("ask", [ask for _, ask in ASKED], ids=[name for name, _ in ASKED])
def test_what_a_library_raises_is_one_line_and_then_it_is_left_alone(ask, wandb, open_run, said):
    wandb.log = Mock(side_effect=fails)
    open_run.take(figures())
    until(lambda: ask(open_run) or said)
    why = "W&B takes no more figures of this run: RuntimeError: the disk is full"
    told = [Notice(text=why, sink="wandb", hinders=True)]
    asked = wandb.log.call_count
    open_run.look()
    open_run.take(figures())
    assert (said, wandb.log.call_count) == (told, asked)


def test_nothing_is_told_of_a_row_that_was_on_its_way_as_the_script_ended_its_run(
    wandb, open_run, said
):
    def end(*_, **__):
        wandb.run = None
        fails()

    wandb.log = end
    open_run.take(figures())
    open_run.close(wait_s=60)
    assert said == []


def test_the_run_after_one_that_takes_no_more_figures_has_them(wandb, open_run, said):
    """As when a script ends its run while a row is on its way, and opens the next one."""
    first, second = Wandb(), Wandb()
    first.log, wandb.run = fails, first
    until(lambda: open_run.take(figures()) or said)
    wandb.run = second
    open_run.take(figures())
    until(lambda: second.row)
    assert [one.hinders for one in said] == [True, False]


def test_a_library_that_hangs_holds_up_nothing_and_few_figures_wait(wandb, open_run, said):
    go_on, got = threading.Event(), []

    def hang(values, commit):
        got.append(values)
        go_on.wait()

    wandb.log = hang
    open_run.take(figures())
    until(lambda: got)
    for step in range(20):
        open_run.take(figures(step))
    assert said == [Notice(text="W&B is slow: some figures are left out", sink="wandb")]
    go_on.set()
    until(lambda: len(got) == 1 + MOST_WAITING)
    assert got[-1]["gpudash/step"] == MOST_WAITING - 1
