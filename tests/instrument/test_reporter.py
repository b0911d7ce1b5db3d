"""Reports add up to the steps of the training."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gpudash.instrument import reporter
from gpudash.instrument.device import DeviceMemory
from gpudash.instrument.host_time import HostTime
from gpudash.instrument.loss import FIRST_STEPS, HostLoss
from gpudash.instrument.reporter import (
    LOSS_EVERY_S,
    RECENT_STEPS,
    REPORT_EVERY_S,
    STATE_EVERY_S,
    Reports,
)
from gpudash.instrument.wire import FinishedStep, StepReport, UntimedSteps

LATER = FIRST_STEPS + 1


@dataclass
class Clock:
    """A clock whose finished steps a test sets."""

    found: list[tuple[FinishedStep, Tensor | None]] = field(default_factory=list)
    only_counted: list[UntimedSteps] = field(default_factory=list)
    spent_s: float = 0.0
    until_s: float = 0.0
    segment: int = 0
    phases: tuple[str, ...] = ("forward", "optimizer", "graph")
    host: HostTime = field(default_factory=HostTime)

    def finished(self) -> list[tuple[FinishedStep, Tensor | None]]:
        found, self.found = self.found, []
        return found

    def count(self, step: int, count: int, samples: int | None, tokens: int | None) -> None:
        self.only_counted.append(UntimedSteps(step, 0, 0.0, count, samples, tokens))

    def counted(self) -> list[UntimedSteps]:
        counted, self.only_counted = self.only_counted, []
        return counted


class Run:
    """Reports with a fake clock and a list of what was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.input_costs_s = 0.0
        self.transform_ms: dict[str, float] = {}
        self.skipped = 0
        self.waited = 0
        self.heard: list[StepReport] = []
        self.memory_reads = 0
        self.clock = Clock()
        monkeypatch.setattr(reporter.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(reporter.time, "thread_time", lambda: self.now_s)
        self.reports = Reports(
            self.clock, HostLoss(), self._input, self._synchronize, self.heard.append, self._memory
        )

    def _input(self) -> tuple[dict[str, float], int]:
        self.now_s += self.input_costs_s
        return self.transform_ms, self.skipped

    def _memory(self) -> DeviceMemory:
        self.memory_reads += 1
        return DeviceMemory(reserved_mib=30.0, allocated_mib=10.0, peak_mib=20.0)

    def _synchronize(self) -> None:
        self.waited += 1

    def finish(
        self,
        step: int,
        samples: int = 8,
        *,
        loss: float | None = None,
        step_ms: float = 1.0,
        segment: int = 0,
        **values: float,
    ) -> None:
        record = FinishedStep(
            step=step,
            segment=segment,
            samples=samples,
            finished_s=self.now_s,
            step_ms=step_ms,
            values=values,
        )
        self.clock.found.append((record, None if loss is None else torch.tensor(loss)))

    def send(self) -> StepReport:
        self.reports.send()
        return self.heard[-1]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


@given(st.lists(st.lists(st.integers(1, 64), max_size=4), min_size=1, max_size=8), st.data())
def test_every_step_is_reported_once_and_totals_are_running_sums(
    batches: list[list[int]], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        run, step, uncounted, samples_seen = Run(monkeypatch), 0, 0, 0
        for samples in batches:
            for number in samples:
                step += 1
                samples_seen += number
                run.finish(step, number)
                if data.draw(st.booleans()):
                    run.reports.look()
            if data.draw(st.booleans()):  # some steps that no instrument sees, before a report
                run.send()
                step, uncounted = step + 2, uncounted + 2
                samples_seen += 6
                run.reports.pass_over(step, 2, 6)
            last = run.send()
            assert (last.total_steps, last.total_samples) == (step, samples_seen)
        reported = [step.step for report in run.heard for step in report.steps]
        assert reported == sorted({*reported})
        assert len(reported) == step - uncounted
        untimed = [one for report in run.heard for one in report.untimed]
        assert sum(one.count for one in untimed) == uncounted


def test_the_newest_step_is_returned_and_none_where_none_has_finished(run: Run) -> None:
    assert run.reports.send() is None
    run.finish(1)
    run.finish(2)
    assert run.reports.send().step == 2
    assert run.reports.send() is None


def test_step_ms_is_the_mean_of_the_newest_steps_under_these_settings(run: Run) -> None:
    for step in range(1, 2 * RECENT_STEPS + 1):
        run.finish(step, step_ms=9.0 if step <= RECENT_STEPS else 1.0 + step % 2)
    assert run.reports.step_ms is None  # not reported so far
    run.send()
    assert run.reports.step_ms == pytest.approx(1.5)
    run.clock.segment += 1
    run.finish(1000, step_ms=4.0, segment=1)
    run.send()
    assert run.reports.step_ms is None  # too few


def test_a_phase_has_the_mean_of_the_steps_that_had_it_under_these_settings(run: Run) -> None:
    run.clock.segment = 1
    run.finish(1, forward_ms=9.0, graph_ms=9.0)
    run.finish(2, segment=1, forward_ms=1.0, optimizer_ms=4.0, host_ms=1.0)
    run.finish(3, segment=1)  # its phases were not measured
    run.finish(4, segment=1, forward_ms=2.0, optimizer_ms=0.0, host_ms=1.0)
    run.send()
    assert run.reports.phases_ms == {"forward": 1.5, "optimizer": 4.0}
    for step in range(5, 5 + RECENT_STEPS):  # of short steps few are measured in full
        run.finish(step, segment=1)
    run.send()
    assert run.reports.phases_ms == {"forward": 1.5, "optimizer": 4.0}


def test_the_losses_of_all_first_steps_are_reported(run: Run) -> None:
    losses = [(step, 9.0 - step / 16) for step in range(1, FIRST_STEPS + 1)]
    for step, loss in losses:
        run.finish(step, loss=loss)
    assert run.send().first_losses == ()  # asked for
    reported = run.send()
    assert [*reported.first_losses] == losses
    assert (reported.loss_step, reported.loss) == losses[-1]
    assert run.send().loss is None


def test_a_later_loss_is_requested_sometimes_and_reported_once(run: Run) -> None:
    run.finish(LATER, loss=7.0)
    assert run.send().loss is None  # asked for
    run.finish(LATER + 1, loss=6.0)
    reported = run.send()  # too soon for the next
    assert (reported.loss_step, reported.loss, reported.first_losses) == (LATER, 7.0, ())
    assert run.send().loss is None
    run.now_s += LOSS_EVERY_S
    run.finish(LATER + 2, loss=5.0)
    run.send()
    reported = run.send()
    assert (reported.loss_step, reported.loss) == (LATER + 2, 5.0)


def test_the_newest_loss_is_read_once_though_no_step_follows_as_in_a_pause(run: Run) -> None:
    run.finish(LATER, loss=7.0)
    run.send()
    run.finish(LATER + 1, loss=6.0)
    assert run.send().loss_step == LATER  # too soon for the next
    heard = []
    for _ in range(3):
        run.now_s += LOSS_EVERY_S
        heard.append(run.send())
    assert [(one.loss_step, one.loss) for one in heard] == [
        (None, None),
        (LATER + 1, 6.0),
        (None, None),
    ]


def test_skipped_samples_add_up_and_transforms_do_not(run: Run) -> None:
    run.skipped, run.transform_ms = 3, {"decode": 2.0}
    assert (run.send().skipped_samples, run.heard[-1].transform_ms) == (3, {"decode": 2.0})
    run.skipped, run.transform_ms = 2, {}
    assert (run.send().skipped_samples, run.heard[-1].transform_ms) == (5, {})


def test_the_instruments_time_is_reported_once_in_the_next_report(run: Run) -> None:
    run.clock.spent_s, run.reports.spent_s = 0.002, 0.001
    run.input_costs_s = 0.004
    assert run.send().instruments_ms == pytest.approx(2 + 1)
    run.input_costs_s = 0.0
    assert run.send().instruments_ms == pytest.approx(4)  # the report before
    assert run.send().instruments_ms == 0


def test_a_late_report_does_not_hurry_the_ones_after_it(run: Run) -> None:
    assert run.reports.due_s == pytest.approx(100 + REPORT_EVERY_S)
    run.now_s = 100.01 + REPORT_EVERY_S  # a little late: the grid stays
    run.send()
    assert run.reports.due_s == pytest.approx(100 + 2 * REPORT_EVERY_S)
    run.now_s = 200.0  # a pause: missed reports are not made up for
    run.send()
    assert run.reports.due_s == pytest.approx(200)


def test_device_memory_is_read_at_most_twice_a_second_and_reported_once(run: Run) -> None:
    run.finish(1)
    read = {"mem_reserved_mib": 30.0, "mem_allocated_mib": 10.0, "mem_peak_mib": 20.0}
    assert run.send().values == read
    for step in range(2, 9):
        run.now_s += REPORT_EVERY_S
        run.finish(step)
        assert run.send().values == {}
    assert run.memory_reads == 1
    run.now_s += STATE_EVERY_S
    run.finish(9)
    assert run.send().values == read


def test_device_memory_is_not_attributed_to_steps_before_a_change(run: Run) -> None:
    run.clock.segment = 1  # the allocator has seen the first step under the new settings …
    run.finish(1)  # … but the device has not finished those before
    assert run.send().values == {}
    run.clock.segment = 0
    run.finish(2)
    assert run.send().values["mem_peak_mib"] == 20.0
