"""What is measured reaches the run that a script has open, and nothing of the script's moves."""

import sys
import threading
from types import ModuleType, SimpleNamespace

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


def figures(tracker, step=120):
    return Figures(
        tracker=tracker,
        step=step,
        at_s=1000.5,
        values={"gpudash/step/steps_per_s": 12.5},
        texts={"gpudash/limit": "data"},
    )


def test_figures_join_the_row_that_the_script_logs_next_to_wandb(opened, tracking):
    wandb, said = opened(Wandb), []
    trackers = tracking(said.append)
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
    assert said == []


def test_mlflow_has_figures_at_their_own_step_and_time(opened, tracking):
    mlflow = opened(Mlflow)
    tracking().take(figures("mlflow"))
    until(lambda: mlflow.tags)
    assert mlflow.metrics == [("run 7", "gpudash/step/steps_per_s", 12.5, 1_000_500, 120)]
    assert mlflow.tags == [("gpudash/limit", "data")]


def test_trackio_has_figures_among_its_system_metrics(opened, tracking):
    trackio = opened(Trackio)
    tracking().take(figures("trackio"))
    until(lambda: trackio.system)
    assert trackio.system[0]["gpudash/step"] == 120


def test_without_an_open_run_one_line_says_so_and_figures_go_there_once_it_has(opened, tracking):
    said = []
    trackers = tracking(said.append)
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


def test_nothing_is_said_of_a_run_that_the_script_has_ended(opened, tracking):
    wandb, trackers = opened(Wandb), tracking()
    trackers.take(figures("wandb"))
    wandb.run = None
    trackers.take(figures("wandb"))


def test_what_a_library_raises_is_one_line_and_then_it_is_left_alone(opened, tracking):
    wandb, said = opened(Wandb), []

    def fail(*_, **__):
        wandb.rows.append("asked")
        raise RuntimeError("the disk is full\nwith details")

    wandb.log = fail
    trackers = tracking(said.append)
    for _ in range(5):
        trackers.take(figures("wandb"))
        until(lambda: wandb.rows)
    until(lambda: trackers.take(figures("wandb")) or said)
    why = "W&B takes no more figures of this run: RuntimeError: the disk is full"
    assert said == [Notice(text=why, sink="wandb", hinders=True)]
    asked = len(wandb.rows)
    trackers.take(figures("wandb"))
    assert len(wandb.rows) == asked
    assert len(said) == 1


def test_what_the_last_row_raises_is_told_too(opened, tracking):
    del opened(Wandb).row  # `log` raises
    raised = "AttributeError: module 'wandb' has no attribute 'row'"
    why = f"W&B takes no more figures of this run: {raised}"
    told = [Notice(text=why, sink="wandb", hinders=True)]
    said, at_the_end = [], []
    trackers = tracking(said.append)
    trackers.take(figures("wandb"))
    until(lambda: trackers.look() or said)
    trackers.look()
    assert said == told
    trackers = tracking(at_the_end.append)
    trackers.take(figures("wandb"))
    trackers.close(wait_s=60)
    assert at_the_end == told


def test_nothing_is_told_of_a_row_that_was_on_its_way_as_the_script_ended_its_run(opened, tracking):
    wandb, trackers = opened(Wandb), tracking()

    def end(*_, **__):
        wandb.run = None
        raise RuntimeError("the run has ended")

    wandb.log = end
    trackers.take(figures("wandb"))
    trackers.close(wait_s=60)


def test_the_run_after_one_that_takes_no_more_figures_has_them(opened, tracking):
    """As when a script ends its run while a row is on its way, and opens the next one."""
    wandb, said = opened(Wandb), []
    first, second = Wandb(), Wandb()
    del first.row  # `log` raises
    wandb.run = first
    trackers = tracking(said.append)
    until(lambda: trackers.take(figures("wandb")) or said)
    wandb.run = second
    trackers.take(figures("wandb"))
    until(lambda: second.row)
    assert [one.hinders for one in said] == [True, False]


def test_two_libraries_have_their_charts_defined_once_each(opened, tracking):
    wandb, trackio = opened(Wandb), opened(Trackio)
    trackers = tracking()
    for step in (1, 2):
        trackers.take(figures("wandb", step))
        trackers.take(figures("trackio", step))
        until(lambda step=step: len(trackio.system) == step)
    assert wandb.row["gpudash/step"] == 2
    assert len(wandb.axes) == 2


def test_no_thread_is_left_once_the_dashboard_has_gone(opened, tracking):
    trackio, trackers = opened(Trackio), tracking()
    for step in (1, 2):
        trackers.take(figures("trackio", step))
    logged(trackers)
    assert len(trackio.system) == 2


def test_a_library_of_another_version_is_one_line(opened, tracking):
    trackio, said = opened(Trackio), []
    del trackio.context_vars
    trackers = tracking(said.append)
    trackers.take(figures("trackio"))
    trackers.take(figures("trackio"))
    assert len(said) == 1
    assert said[0].text.startswith("Trackio takes no figures: AttributeError: ")


def test_a_library_that_hangs_holds_up_nothing_and_few_figures_wait(opened, tracking):
    wandb, go_on, got, said = opened(Wandb), threading.Event(), [], []

    def hang(values, commit):
        got.append(values)
        go_on.wait()

    wandb.log = hang
    trackers = tracking(said.append)
    trackers.take(figures("wandb"))
    until(lambda: got)
    for step in range(20):
        trackers.take(figures("wandb", step))
    assert said == [Notice(text="W&B is slow: some figures are left out", sink="wandb")]
    go_on.set()
    until(lambda: len(got) == 1 + MOST_WAITING)
    assert got[-1]["gpudash/step"] == MOST_WAITING - 1
