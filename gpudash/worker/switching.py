"""Lever changes between two steps, with a way back to the last good settings if one fails."""

import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from gpudash.instrument.block_queue import BlockQueue, difference
from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives
from gpudash.instrument.life import OUTSIDE_BLOCKS, Life
from gpudash.instrument.memory import device_memory, give_back, reset_peak
from gpudash.instrument.memory_history import MemoryHistory
from gpudash.instrument.reporter import Reports, instruments
from gpudash.protocol import (
    Note,
    Plan,
    RefusalKind,
    Refused,
    Settings,
)
from gpudash.worker.memory_needs import MemoryNeeds
from gpudash.worker.phases import PHASES
from workloads.levers import LeverError, phrase
from workloads.memory import is_out_of_memory
from workloads.own.loading import failure
from workloads.training import Training

ResultT = TypeVar("ResultT")
MIN_AHEAD = 2
WATCHED_STEPS = 2
"""Steps after a start or a change whose allocations are recorded, in case memory runs out. The
second one has all that a step needs."""


class Switching:
    """One training with its instruments and levers; a loop steps it."""

    phases = PHASES

    def __init__(self, training: Training, plan: Plan, life: Life) -> None:
        self._training = training
        self._plan = plan
        self._life, self._send = life, life.send
        self._clock, losses = instruments(training.device, self.phases)
        reported = training.input_report, training.synchronize
        memory = partial(device_memory, training.device)
        self._reports = Reports(
            self._clock, losses, *reported, life.send, memory, self._collectives
        )
        self._noted = set(training.notes.values())  # `Started` has these notes
        self._requested = plan.settings
        self._last_good = dict(training.settings)  # settings with which a warm step finished …
        self._last_good_requested = plan.settings  # … and as they were requested, `auto` kept
        self._warm_from_step = 0  # after this step the present settings count as good
        self._needs = MemoryNeeds(training.device)
        self._history = MemoryHistory(training.device, training.owned, life.send)
        self._blocks = BlockQueue()
        self._leaves_blocks = False  # with the change in progress
        self._enough: float = MIN_AHEAD  # enqueued steps that keep the device busy

    def _report(self) -> None:
        """Send reports; once a warm step has finished, the settings become the last good ones."""
        newest = self._reports.send()
        if newest and newest.segment == self._clock.segment and newest.step > self._warm_from_step:
            self._last_good = dict(self._training.settings)
            self._last_good_requested = self._requested
            self._needs.note(self._training.settings, self._reports.memory)

    def _on_all_ranks(self, act: Callable[[], ResultT]) -> ResultT:
        """Run `act`, which may be refused; with several ranks it takes effect on all or none.

        Raises LeverError for a refusal and for an error of the user's code.
        """
        try:
            return act()
        except Exception as error:
            if isinstance(error, LeverError) or is_out_of_memory(error):
                raise
            traceback.print_exc()
            raise LeverError(failure(error, self._plan.workload)) from error

    def _switch(
        self,
        changes: Settings,
        wanted: Settings,
        began_s: float,
        answers: tuple[int, ...] = (),
        requested: Settings | None = None,
    ) -> None:
        """Enter the resolved settings `wanted`, or roll back to the last good ones."""
        self._drain()
        if answers and not self._blocks.running:
            # memory may run out in the warm-up; no step is measured in it
            self._history.watch(self._training.trained_steps + WATCHED_STEPS)
        try:
            fits = self._fits(lambda: self._on_all_ranks(lambda: self._training.enter(wanted)))
        except LeverError as error:  # found while building: a data directory that is gone
            self._roll_back(began_s, answers, str(error))
            return
        if fits:
            self._requested = requested or self._requested
            self._entered_segment(changes, began_s, answers)
        else:
            self._roll_back(began_s, answers)

    def _fits(self, action: Callable[[], None]) -> bool:
        """Run `action`; return False if it ran out of memory and a rollback is possible."""
        try:
            action()
        except (RuntimeError, MemoryError, OSError) as error:
            if not self._may_roll_back(error):
                raise
            return False
        return True

    def _may_roll_back(self, error: Exception) -> bool:
        """Return whether memory ran out under settings other than the last good ones."""
        return is_out_of_memory(error) and self._training.settings != self._last_good

    def _roll_back(self, began_s: float, answers: tuple[int, ...] = (), why: str = "") -> None:
        """Go back to the last good settings; `why` is the reason if memory is not.

        The time since `began_s` counts as part of the change.
        """
        failed, good = self._training.settings, self._last_good
        changes, restored = difference(good, failed), difference(failed, good)
        owners = None if why else self._history.report()
        self._training.recover(good)
        give_back(self._training.device)
        self._requested = self._last_good_requested
        kind: RefusalKind = "bad_setting" if why else "out_of_memory"
        known = () if why else self._needs.why_not(failed, owners)
        why = why or f"out of memory with {phrase(changes)}"
        reason = "; ".join((f"{why}: went back to {phrase(restored)}", *known))
        self._refuse(kind, changes, reason, answers)
        self._blocks.current = None
        self._entered_segment(restored, began_s)

    def _entered_segment(
        self, changes: Settings, began_s: float, answers: tuple[int, ...] = ()
    ) -> None:
        self._clock.segment += 1
        self._break()
        if "batch_size" in changes and not self._blocks.running:
            give_back(self._training.device)
        reset_peak(self._training.device)
        training = self._training
        self._warm_from_step = training.trained_steps + training.warmup_steps
        self._begin_block()
        blocks, now = self._blocks, time.monotonic()
        within = OUTSIDE_BLOCKS
        if blocks.running and not answers and not self._leaves_blocks:
            number = blocks.current.number if blocks.current else None
            within = {"run": blocks.run, "block": number, "baseline": dict(blocks.baseline)}
        self._life.turn(
            now,
            answers=answers,
            segment=self._clock.segment,
            after_step=training.trained_steps,
            changes=changes,
            settings=dict(training.settings),
            requested=self._requested,
            took_ms=(now - began_s) * 1e3,
            warmup_steps=training.warmup_steps,
            notes=tuple(Note(lever=lever, text=text) for lever, text in training.notes.items()),
            **within,
        )
        new = [note for note in training.notes.values() if note not in self._noted]
        self._noted.update(new)  # printed once, however often a comparison switches
        self._print_notes(new)

    def _begin_block(self) -> None:
        training = self._training
        self._blocks.entered(training.trained_steps, training.warmup_steps, training.burst_steps)

    def _print_notes(self, notes: list[str]) -> None:
        for note in notes:
            print(note, flush=True)

    def _refuse(
        self, kind: RefusalKind, changes: Settings, reason: str, answers: tuple[int, ...] = ()
    ) -> None:
        """Refuse settings that a command or the block in progress asked for."""
        refused = Refused(answers=answers, kind=kind, changes=changes, reason=reason)
        block = self._blocks.current
        if block is not None and not answers:
            refused = msgspec.structs.replace(refused, run=self._blocks.run, block=block.number)
        self._send(refused)

    def _drain(self) -> None:
        training = self._training
        if training.pending:
            trained = training.drain(self._begin())
            assert trained is not None, "it was pending"
            self._clock.end(training.trained_steps, trained.samples, trained.loss)

    def _begin(self) -> Mark:
        """Begin an iteration on the clock; return its mark."""
        return self._clock.begin()

    def _break(self) -> None:
        """Restart the clock and the pace: the time until now is not part of the next step."""
        self._clock.interrupt()
        self._enough = MIN_AHEAD

    def _collectives(self) -> Collectives:
        """Return the collectives of a step; a single process has none."""
        return Collectives()
