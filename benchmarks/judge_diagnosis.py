"""Judge limits, gains and first proposals on the forty recorded trainings, in Markdown.

    python -m benchmarks.judge_diagnosis

`tests/diagnosis/recordings` has what an H200 measured of each: its steps, a profile, and an A/B of
each value of each lever. Of `compile` there is none, so a first proposal of it is right only if
`benchmarks/causes/truth.toml` says so.
"""

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.diagnosis.answer import UNEXPLAINED, find
from gpudash.diagnosis.effects import gain_of
from gpudash.diagnosis.lever_change import LeverChange
from gpudash.diagnosis.model import model_of, played_ms
from gpudash.diagnosis.recent_step import recent_step
from gpudash.protocol.answer import LEAST_PCT, Gain
from tests.diagnosis.recorded import NAMES, Known, Trial, recorded
from tests.tui.fake_engine import means_of

WORDS = {"data": "input", "cores": "others", "asides": "paused", "none": "unclear"}
"""Words of truth.toml for limits."""
CLOSE_PCT = 5.0
"""A gain so far from its range is within the model's error; a proposal so far from the best lever
is as good."""
CLOSE = 0.02
"""A step so far from its model is foretold."""


class JudgedGain(NamedTuple):
    """A measured gain, and what was said of it."""

    trial: Trial
    gain: Gain

    @property
    def is_right(self) -> bool:
        """Whether the measured gain lies in the range."""
        pct = 100 * (self.trial.change or 0.0)
        if self.gain.high_pct < LEAST_PCT:
            return pct <= LEAST_PCT + CLOSE_PCT
        is_low = self.gain.low_pct is not None and pct < self.gain.low_pct - CLOSE_PCT
        return not is_low and pct <= self.gain.high_pct + CLOSE_PCT

    @property
    def width(self) -> float | None:
        """The longest step of the range over the shortest; None if no gain is said."""
        low_pct, high_pct = self.gain.low_pct or 0.0, self.gain.high_pct
        return (100 + high_pct) / (100 + min(low_pct, high_pct)) if high_pct >= LEAST_PCT else None


def judged_gains(name: str, *, profiled: bool) -> Iterator[JudgedGain]:
    """Yield what was measured of a training's levers and is known of by the model."""
    known, snapshot = recorded(name)
    step = recent_step(snapshot, known.cores, known.summary if profiled else None)
    model = model_of(step)
    offers = {offer.name: dict(offer.helps) for offer in known.levers}
    for trial in known.trials:
        helps = _helps(offers.get(trial.lever, {}), trial)
        if model is None or helps is None or trial.change is None:
            continue
        change = LeverChange(helps, trial.before, trial.value, step, model)
        if (gain := gain_of(change)) is not None:
            yield JudgedGain(trial, gain)


def _helps(ways: dict[str, str], trial: Trial) -> str | None:
    is_count = trial.value.isdecimal() and trial.before.isdecimal()
    is_more = is_count and int(trial.value) > int(trial.before)
    return ways.get(trial.value) or (ways.get("next") if is_more else None)


def is_first_right(known: Known, first: tuple[str, str] | None) -> bool:
    """Return whether the first proposal is the best lever there was, or rightly none."""
    gained = {
        (one.lever, one.value): 100 * one.change for one in known.trials if one.change is not None
    }
    best_pct = max((0.0, *gained.values()))
    if first is None:
        return not known.best and best_pct < 2 * CLOSE_PCT
    pct = gained.get(first)
    return first[0] in known.best or (pct is not None and pct >= best_pct - CLOSE_PCT)


def judged(name: str, *, profiled: bool) -> tuple[str, bool, str, bool]:
    """Return limit and first proposal of a training, each with whether it is right."""
    known, snapshot = recorded(name)
    found = find(snapshot, known.cores, known.summary if profiled else None)
    if found is None:
        return "–", False, "–", False
    limit = WORDS.get(found.limit, found.limit)
    first = next((one for one in found.tries if one.gain is not None), None)
    is_right = is_first_right(known, None if first is None else first.change)
    return limit, limit in known.limits, "–" if first is None else first.promise, is_right


class Foretold(NamedTuple):
    """A step by the model of a run's first half, in ms, and what was measured in both halves."""

    modelled_ms: float
    first_ms: float
    second_ms: float


def foretold(name: str) -> Foretold | None:
    """Return what the model of the first half says of the second.

    None: it abstains, as too little is measured or more than a tenth of the step is unexplained.
    """
    known, snapshot = recorded(name)
    series = snapshot.series
    middle_s = (series.at_s[0] + series.at_s[-1]) / 2
    first = sum(at_s <= middle_s for at_s in series.at_s)
    halves = (slice(first), slice(first, None))
    steps = [
        recent_step(replace(snapshot, recent=means_of(series, half)), known.cores)
        for half in halves
    ]
    model, after_ms = model_of(steps[0]), steps[1].step_ms
    if model is None or after_ms is None or model.residual > UNEXPLAINED:
        return None
    return Foretold(median(map(played_ms, model.scenarios)), model.step_ms, after_ms)


def judge_steps() -> None:
    """Print how well the model of a run's first half foretells a step, and the run itself does."""
    told = [one for name in NAMES if (one := foretold(name)) is not None]
    for what, pairs in (
        ("the model's step and the one of the half that it is of", [one[:2] for one in told]),
        ("the model's step and the one of the second half", [one[::2] for one in told]),
        ("the steps of both halves", [one[1:] for one in told]),
    ):
        errors = [abs(a_ms / b_ms - 1) for a_ms, b_ms in pairs]
        close = sum(error <= CLOSE for error in errors)
        print(f"- {what} differ by 2 % at most in {close} of {len(told)}", end="; ")
        print(f"in the median by {100 * median(errors):.1f} %")
    print(f"- the model abstained in {len(NAMES) - len(told)} of {len(NAMES)}")


def main() -> None:
    """Print a table for each way to measure, and what it adds up to."""
    judge_steps()
    for profiled in (False, True):
        print(f"\n{'With' if profiled else 'Without'} a profile:\n")
        print("| training | right | said | | first proposal | |\n|---|---|---|---|---|---|")
        rows = {name: judged(name, profiled=profiled) for name in NAMES}
        for name, (limit, is_limit, first, is_first) in rows.items():
            right = " or ".join(recorded(name).known.limits)
            marks = ["✓" if one else "✗" for one in (is_limit, is_first)]
            print(f"| {name} | {right} | {limit} | {marks[0]} | {first} | {marks[1]} |")
        gains = [one for name in NAMES for one in judged_gains(name, profiled=profiled)]
        widths = [one.width for one in gains if one.width is not None]
        limits = sum(is_right for _, is_right, _, _ in rows.values())
        firsts = sum(is_right for *_, is_right in rows.values())
        print(f"\n- limits right: {limits} of {len(rows)}; first proposals: {firsts}")
        print(f"- gains in their range: {sum(one.is_right for one in gains)} of {len(gains)}")
        print(f"- median width of a range, as a ratio of step times: {median(widths):.2f}")


if __name__ == "__main__":
    main()
