"""The A/Bs of a run: beginning and ending them, and what follows from a verdict."""

import re
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudash import format as fmt
from gpudash.compare.ab import Question
from gpudash.compare.lengths import FEWEST_PAIRS, PAIRS, TUNE_S
from gpudash.compare.slowing import MOST_S
from gpudash.diagnosis.causes.table import caution_in_ab
from gpudash.errors import UsageError
from gpudash.offers import canonical
from gpudash.present import wording
from gpudash.protocol.answer import Try
from gpudash.protocol.records import Settings
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Lever
from gpudash.tui.keys import key_for
from gpudash.tui.lever_control import LeverControl
from gpudash.tui.run_state import Request, RunState
from workloads.levers import AUTO, phrase

MOST_PAIRS = 10_000
MOST_NAMED = 80
"""Most characters of a card's name: values may be long."""


class AbControl:
    """Requests of A/Bs; most return a notice. An impossible one raises UsageError."""

    def __init__(self, run: RunState, levers: LeverControl) -> None:
        self._run, self._levers = run, levers
        self.waits: Try | None = None
        """What is tried once no other job takes cores."""

    def wait(self, proposed: Try) -> None:
        self._levers.check_numbers({proposed.lever: proposed.value})
        self.waits = proposed

    def take_due(self) -> Try | None:
        """Return what has waited, once, when it is quiet and possible; if refused, it is over."""
        waits, run = self.waits, self._run
        if waits is None or run.why_not("blocks", waits.lever) or caution_in_ab(run.snapshot):
            return None
        self.waits = None
        return waits

    def compare(self, name: str, text: str) -> None:
        """Raise LeverError if `text` is no value of the lever."""
        lever = self._levers.lever(name)
        self._run.require("blocks", name)
        a, b = self._levers.value(lever), canonical(lever, text)
        if a == b:
            raise UsageError(f"{lever.name} is {a} already; an A/B needs another value")
        if b == AUTO:
            raise UsageError(f"{lever.name}={AUTO} stands for another value; an A/B needs that one")
        self._compare(lever, a, b, PAIRS)

    def _compare(self, lever: Lever, a: str, b: str, pairs: int, *, goes_on: bool = False) -> None:
        self._levers.check_numbers({lever.name: b})
        self.waits = None
        question = Question(lever=lever.name, a=a, b=b, short_runs=lever.rebuilds, pairs=pairs)
        number = self._run.engine.compare(question, goes_on=goes_on)
        self._run.asked["comparison"] = Request(number, True)

    def end(self) -> str:
        """Give a verdict if there are enough pairs."""
        run = self._run
        run.require("compare")
        run.asked["comparison"] = Request(run.engine.end_comparison(), False)
        is_tune = run.running is not None and run.running.doing
        what = "the proof" if run.slowing else "the tune" if is_tune else "the A/B"
        return f"{what} ends {'once the training goes on' if run.pausing else 'after this step'}"

    def prove(self) -> str:
        """Slow the parts of a step in turns."""
        run = self._run
        run.require("prove")
        answer = run.snapshot.answer
        assert answer is not None, "it is required"
        assert answer.step_ms is not None, "it is required"
        run.engine.rehearse()
        run.asked["comparison"] = Request(run.engine.slow(answer.step_ms), True)
        ends = f"{MOST_S:.0f} s at most; {key_for('compare')} ends it"
        return f"each part of a step is slowed in turns, {ends}"

    @property
    def asks_numbers(self) -> bool:
        """Whether a tune could try levers that compute other numbers, and nobody has agreed."""
        return not self._levers.agreed and any(
            lever.numerics and lever.refusal is None for lever in self._levers.all
        )

    def tune(self, *, numerics: bool) -> str:
        from gpudash.compare.tune.tunable import choose  # noqa: PLC0415  # …
        from gpudash.compare.tune.tuning import Tuning, compiling  # noqa: PLC0415  # …

        run = self._run
        run.require("tune")
        found = choose(run.snapshot, numerics=numerics)
        found.require(run.workload)
        tuning = Tuning(found.tunables, energy=run.engine.meters)
        run.asked["comparison"] = Request(run.engine.conduct(tuning), True)
        levers = ", ".join(one.name for one in found.tunables)
        more = f"; {compiling(TUNE_S)}" * any(one.compiles for one in found.tunables)
        return f"tries {levers} for {TUNE_S:.0f} s at most{more}; {key_for('compare')} ends it"

    @property
    def is_sure(self) -> bool:
        """Whether the running A/B may end: it is certain which value is faster."""
        return self._run.running is not None and self._run.running.is_sure

    # ── the last one ────────────────────────────────────────────────────────────────────

    def keep(self) -> str:
        """Set value B of the last A/B, or what a tune has found."""
        shown = self.concluded("keep")
        if shown.doing:
            return self._set_all(shown.best, "nothing was faster than the start")
        if shown.verdict is None:  # value B may not even run
            raise UsageError("the A/B has no verdict: there is nothing to keep")
        notice = self._settle_on(shown.lever, shown.b)
        return f"{notice}; {key_for('code')} shows the lines for your own script"

    def back(self) -> str:
        """Set value A of the last A/B, or what was before a tune."""
        shown = self.concluded("go_back")
        if shown.doing:
            return self._set_all(shown.start, "the start is set")
        return self._settle_on(shown.lever, shown.a)

    def _set_all(self, settings: Settings, why_none: str) -> str:
        changed = bool(settings) and self._levers.set(settings)
        return f"{phrase(settings)} is set" if changed else why_none

    def _settle_on(self, name: str, value: str) -> str:
        lever = self._levers.lever(name)
        if not self._levers.set({name: value}):
            return f"{name} stays {value}"
        return f"{name}={value} from the {'next start' if self._run.dead else lever.effect} on"

    def more_pairs(self) -> str:
        """Go on up to twice the pairs measured; begin anew if other settings have changed since."""
        shown, now = self.concluded("more_pairs"), self._run.snapshot.settings
        if shown.doing:
            raise UsageError(f"only an A/B goes on; {key_for('tune')} tunes again")
        lever = self._levers.lever(shown.lever)
        self._run.require("blocks", lever.name)
        goes_on = all(now.get(name) == value for name, value in shown.settings.items())
        pairs = min(2 * max(shown.pairs, FEWEST_PAIRS), MOST_PAIRS)
        self._compare(lever, shown.a, shown.b, pairs, goes_on=goes_on)
        how = "goes on" if goes_on else "begins anew"
        return f"the A/B of {shown.lever} {how}, up to {pairs} pairs"

    def concluded(self, action: str) -> ComparisonShown:
        """Return the A/B that the action follows."""
        self._run.require(action)
        shown = self._run.snapshot.comparison
        assert shown is not None, "it is required"
        return shown

    def value_of_interest(self, lever: Lever) -> str:
        """Return the second value of the lever's A/B, until another one is set, or its value.

        Where nobody has moved the lever, it is the value that the answer proposes.
        """
        now, shown = self._levers.value(lever), self._run.snapshot.comparison
        if shown is None or shown.lever != lever.name or shown.failure is not None:
            answer = self._run.snapshot.answer
            tries = answer.tries if answer is not None and now == lever.default else ()
            return next((one.value for one in tries if one.lever == lever.name), now)
        return shown.b if now == shown.a or not shown.is_over else now

    def command(self, shown: ComparisonShown, *, starts: int = 1) -> str:
        run = self._run
        count = max(run.plan.nproc, len(run.snapshot.ranks))  # a replay's plan has no ranks
        plan = msgspec.structs.replace(run.plan, nproc=count)
        return wording.verdict_command(shown, run.workload, plan, starts=starts)

    def card(self) -> str:
        """Write the card's files in place of older ones. Raise GpudashError if that fails."""
        from gpudash.present.card import FORMS, card_of  # noqa: PLC0415  # after the first frame
        from gpudash.recording.files import created  # noqa: PLC0415  # …

        shown, command = self.concluded("card"), ""
        with suppress(UsageError):  # the command is not known in a recording
            command = self.command(shown)
        card = card_of(shown, self._run.snapshot, command)
        if card is None:
            raise UsageError("the A/B has no verdict: there is nothing to show")
        what = f"{shown.lever}-{shown.a}-{shown.b}" if not shown.doing else "tune"
        stem = re.sub(r"[^\w.-]+", "-", f"gpudash-{what}")[:MOST_NAMED]
        for suffix, write in FORMS.items():  # the name is ours: a newer card replaces it
            with created(Path(f"{stem}{suffix}"), force=True) as file:
                file.append(write(card).encode())
        return f"written: {' and '.join(f'{stem}{suffix}' for suffix in FORMS)}"

    # ── the running one ─────────────────────────────────────────────────────────────────

    @property
    def ending(self) -> str:
        """How a running A/B ends if the run does, and what is left of it; empty without one."""
        shown = self._run.running
        if not self._run.comparing:
            return ""
        if self._run.slowing:
            return "the proof by slowing ends"
        if shown is None:  # just requested
            return "the A/B just begun ends"
        if shown.doing:
            return "the tune ends, with the best so far"
        of = f"{shown.pairs} of {shown.planned_pairs} pairs"
        kept = "too few for a verdict" if shown.low is None else "its verdict is kept"
        return f"the A/B of {fmt.plain(shown.lever)} ends after {of}: {kept}"
