"""What is measured reaches the run that a script has open, and nothing of the script's moves."""

import sys
import threading
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pytest

from gpudash.protocol.commands import Figures
from gpudash.protocol.session import Notice
from gpudash.training.trackers import MOST_WAITING, THREAD, Trackers
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


class Mlflow(ModuleType):
    """As MLflow: a thread has its own active run."""

    def __init__(self):
        super().__init__("mlflow")
        self.metrics, self.tags, self._of_thread = [], [], threading.local()
        self.entities = SimpleNamespace(
            Metric=lambda *values: values, RunTag=lambda *values: values
        )
        self._of_thread.run = SimpleNamespace(info=SimpleNamespace(run_id="run 7"))

    def active_run(self):
        return getattr(self._of_thread, "run", None)

    def MlflowClient(self):  # noqa: N802
        return self

    def log_batch(self, run_id, metrics, tags):
        self.metrics += [(run_id, *one) for one in metrics]
        self.tags += tags


class Trackio(ModuleType):
    """As Trackio: a row without a step takes the next one, system metrics have times instead."""

    def __init__(self):
        super().__init__("trackio")
        self.system = []
        self.context_vars = SimpleNamespace(current_run=SimpleNamespace(get=lambda: self))

    def log_system(self, values):
        self.system.append(values)


def logged(trackers):
    """Have all be logged that was taken."""
    trackers.close()
    until(lambda: THREAD not in {one.name for one in threading.enumerate()})


@pytest.fixture
def tracking():
    made = []

    def track(say=pytest.fail):
        made.append(Trackers(say))
        return made[-1]

    yield track
    for one in made:
        logged(one)


@pytest.fixture
def opened(monkeypatch):
    def open_run(double):
        module = double()
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    return open_run


@pytest.fixture
def wandb(opened):
    return opened(Wandb)


@pytest.fixture
def said():
    return []


@pytest.fixture
def trackers(tracking, said):
    return tracking(said.append)


def fails(*_, **__):
    raise RuntimeError("the disk is full\nwith details")


def figures(tracker, step=120):
    return Figures(
        tracker=tracker,
        step=step,
        at_s=1000.5,
        values={"gpudash/step/steps_per_s": 12.5},
        texts={"gpudash/limit": "data"},
    )


def test_figures_join_the_row_that_the_script_logs_next_to_wandb(wandb, trackers, said):
    wandb.log({"loss": 2.0})
    trackers.take(figures("wandb"))
    until(lambda: wandb.row)
    assert wandb.rows == [{"loss": 2.0}]  # no row, and so no step, of its own
    wandb.log({"loss": 1.0})
    ours = {"gpudash/step/steps_per_s": 12.5, "gpudash/limit": "data", "gpudash/step": 120}
    assert wandb.rows[1] == {"loss": 1.0, **ours}
    assert wandb.axes == [
        ("gpudash/step", None, True),
        ("gpudash/*", "gpudash/step", False),
    ]
    trackers.take(figures("wandb", step=130))
    until(lambda: wandb.row)
    assert wandb.row["gpudash/step"] == 130
    assert len(wandb.axes) == 2  # once a run
    wandb.run = None
    trackers.take(figures("wandb"))
    assert said == []  # nothing of a run that the script has ended, either


def test_mlflow_has_figures_at_their_own_step_and_time(opened, tracking):
    mlflow = opened(Mlflow)
    tracking().take(figures("mlflow"))
    until(lambda: mlflow.tags)
    assert mlflow.metrics == [("run 7", "gpudash/step/steps_per_s", 12.5, 1_000_500, 120)]
    assert mlflow.tags == [("gpudash/limit", "data")]


def test_without_an_open_run_one_line_says_so_and_figures_go_there_once_it_has(
    opened, trackers, said
):
    trackers.take(figures("wandb"))  # the script has not imported it
    wandb = opened(Wandb)
    wandb.run = None
    trackers.take(figures("wandb"))
    why = "W&B: the training has no run open; once it has, figures go there"
    assert said == [Notice(text=why, sink="wandb", hinders=True)]
    wandb.run = wandb
    trackers.take(figures("wandb"))
    until(lambda: wandb.row)
    there = "W&B: the training has opened a run, and figures go there"
    assert said[1:] == [Notice(text=there, sink="wandb")]


ASKED = [
    ("the next figures", lambda trackers: trackers.take(figures("wandb"))),
    ("a look", Trackers.look),
    ("the end", lambda trackers: trackers.close(wait_s=60)),
]


@pytest.mark.parametrize("ask", [ask for _, ask in ASKED], ids=[name for name, _ in ASKED])
def test_what_a_library_raises_is_one_line_and_then_it_is_left_alone(ask, wandb, trackers, said):
    wandb.log = Mock(side_effect=fails)
    trackers.take(figures("wandb"))
    until(lambda: ask(trackers) or said)
    why = "W&B takes no more figures of this run: RuntimeError: the disk is full"
    told = [Notice(text=why, sink="wandb", hinders=True)]
    asked = wandb.log.call_count
    trackers.look()
    trackers.take(figures("wandb"))
    assert (said, wandb.log.call_count) == (told, asked)


def test_nothing_is_told_of_a_row_that_was_on_its_way_as_the_script_ended_its_run(
    wandb, trackers, said
):
    def end(*_, **__):
        wandb.run = None
        fails()

    wandb.log = end
    trackers.take(figures("wandb"))
    trackers.close(wait_s=60)
    assert said == []


def test_the_run_after_one_that_takes_no_more_figures_has_them(wandb, trackers, said):
    """As when a script ends its run while a row is on its way, and opens the next one."""
    first, second = Wandb(), Wandb()
    first.log, wandb.run = fails, first
    until(lambda: trackers.take(figures("wandb")) or said)
    wandb.run = second
    trackers.take(figures("wandb"))
    until(lambda: second.row)
    assert [one.hinders for one in said] == [True, False]


def test_two_libraries_have_all_that_was_taken_and_their_charts_defined_once_each(
    opened, wandb, trackers
):
    trackio = opened(Trackio)
    for step in (1, 2):
        trackers.take(figures("wandb", step))
        trackers.take(figures("trackio", step))
    logged(trackers)  # no thread is left once the dashboard has gone
    assert [one["gpudash/step"] for one in (*trackio.system, wandb.row)] == [1, 2, 2]
    assert len(wandb.axes) == 2


def test_a_library_of_another_version_is_one_line(opened, trackers, said):
    del opened(Trackio).context_vars
    trackers.take(figures("trackio"))
    trackers.take(figures("trackio"))
    assert len(said) == 1
    assert said[0].text.startswith("Trackio takes no figures: AttributeError: ")


def test_a_library_that_hangs_holds_up_nothing_and_few_figures_wait(wandb, trackers, said):
    go_on, got = threading.Event(), []

    def hang(values, commit):
        got.append(values)
        go_on.wait()

    wandb.log = hang
    trackers.take(figures("wandb"))
    until(lambda: got)
    for step in range(20):
        trackers.take(figures("wandb", step))
    assert said == [Notice(text="W&B is slow: some figures are left out", sink="wandb")]
    go_on.set()
    until(lambda: len(got) == 1 + MOST_WAITING)
    assert got[-1]["gpudash/step"] == MOST_WAITING - 1
