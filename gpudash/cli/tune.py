"""`gpudash tune`: find the best levers of a training, and prove them against the start."""

import argparse
from collections.abc import Iterator, Sequence

import msgspec

from gpudash import format as fmt
from gpudash.cli import tune_memory
from gpudash.cli.catalogue import Shown, recipe_lines
from gpudash.cli.following import after_tune
from gpudash.cli.measure import Course, Ended, measure, training_of
from gpudash.cli.stdout import ask, complain, on_terminal, say_found
from gpudash.compare.energy import Costs, costs, worth_lines
from gpudash.compare.sequential import LEAST
from gpudash.compare.tune.search import Allowance, Tried
from gpudash.compare.tune.tunable import Chosen, LeftOut, choose, reasons
from gpudash.compare.tune.tuning import Tuning, change_of, compiling, is_told, worth_of
from gpudash.errors import Exit, UsageError
from gpudash.protocol.records import Settings
from gpudash.protocol.session import EnergyFound
from gpudash.protocol.training import State
from gpudash.recording.files import shown
from gpudash.snapshot import Snapshot
from workloads.levers import phrase
from workloads.take_home import recipe

ANSWER_S, ANSWER = 15.0, 0.25
"""How long the answer is waited for, and as a part of the budget: it says what promises most."""
MOST_WAITED = 0.5
"""Part of the budget that waiting takes at most: a model may be found late."""
PATIENCE_S = 120.0
"""Seconds to wait for a first step."""
QUESTION = (
    "Try levers that compute other numbers too, such as precision? "
    "The weights will differ from a plain run. [y/N] "
)


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpudash tune --json` prints. None = not measured."""

    schema_version: int = 1
    workload: str
    device: str | None
    best: Settings
    """The levers to change, with their values: proven to be faster. Empty: the start is best."""
    leader: Settings
    """The best so far, proven or not: it differs from `best` if the proof has not shown it."""
    start: Settings
    """The values before the tune of all levers that were tried."""
    verdict: str | None
    """The verdict sentence; None if the tune was ended before its proof, or cannot tell."""
    why_none: str | None
    """Why there is no verdict."""
    change: float | None
    """Throughput of the leader against the start, as a share, by the proof alone."""
    low: float | None
    high: float | None
    confidence: float | None
    """Confidence of the interval from `low` to `high`."""
    pairs: int
    """Pairs of blocks of the proof."""
    energy: EnergyFound | None = None
    """By the proof, of the start and of the leader. None if `--energy` did not ask for it, or it is
    not known."""
    why_no_energy: str = ""
    """Why it is not known; empty if it was not asked for."""
    costs: Costs | None = None
    """Of the start and of the leader; None without `--price`."""
    tried: tuple[Tried, ...]
    """In order, each against the best of then."""
    left_out: tuple[LeftOut, ...]
    """The levers that were not tried."""
    remembered: bool
    """Whether the leader is of an earlier tune, and only its proof is new."""
    ran_out: bool
    """Whether the budget ended before all was tried."""
    budget_s: float
    spent_s: float
    compiled_s: float
    """What compiling took beside `spent_s`."""
    core_wait_pct: float | None
    harm: str | None
    """What a setting has done to the training: a loss that stayed no number."""
    next: str | None = None
    """The command to go on with."""


def main(arguments: argparse.Namespace) -> int:
    if arguments.save is not None:
        if arguments.user_command:
            raise UsageError(
                "--save does not go with a command of yours: a profile holds levers of gpudash's "
                "workloads; the lines of PyTorch are printed"
            )
        tune_memory.check_profile(arguments.save, arguments.profiles)
    training = training_of(arguments, named(arguments), "tuned")
    if training.levers is None or any(lever.numerics for lever in training.levers):
        _ask(arguments)
    tune = Tune(arguments)
    return conclude(tune, arguments, measure(training, arguments, tune))


def named(arguments: argparse.Namespace) -> list[str]:
    names = [] if arguments.only is None else arguments.only.split(",")
    if "" in names:
        raise UsageError(f"--levers {arguments.only} is not valid; valid: NAME,NAME,…")
    return names


class Tune(Course):
    """Waits until enough is known of the training, then tunes it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.tuning: Tuning | None = None
        """None until it has begun."""
        self.choice = Chosen((), ())
        """The levers that are tried, and those that are not."""
        self.circumstances: tune_memory.Circumstances | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has its verdict, and no end of the training cut it short."""
        return self.tuning is not None and self.tuning.is_whole

    def now(self, snapshot: Snapshot) -> str:
        if self.tuning is not None:
            return progress(self.tuning)
        return "measuring" if snapshot.total_steps else snapshot.status_line

    def stages(self) -> Iterator[bool]:
        news = self.news
        while not news.snapshot.total_steps:
            if (news.snapshot.quiet_s or 0.0) > PATIENCE_S:
                self.failure = f"no step for {PATIENCE_S:.0f} s; gpudash doctor may tell why"
                return
            yield False
        began_s, budget_s = news.snapshot.elapsed_s, self._arguments.budget
        until_s = began_s + min(ANSWER_S, ANSWER * budget_s)
        while self._is_unknown(until_s):
            yield False
        self.choice = choose(
            news.snapshot, named=named(self._arguments), numerics=self._arguments.numerics
        )
        self.choice.require(news.snapshot.workload)
        if any(one.compiles for one in self.choice.tunables) and not self._arguments.quiet:
            complain(compiling(budget_s))
        waited_s = news.snapshot.elapsed_s - began_s
        tuning = self.tuning = Tuning(
            self.choice.tunables,
            Allowance(budget_s, spent_s=min(waited_s, MOST_WAITED * budget_s)),
            recall=self._recall,
            energy=self._arguments.energy,
        )
        self.session.conduct(tuning)
        while not tuning.is_over:
            yield False

    def _is_unknown(self, until_s: float) -> bool:
        snapshot = self.news.snapshot
        return not snapshot.levers_complete or (
            snapshot.answer is None and snapshot.elapsed_s < until_s
        )

    def _recall(self, state: State) -> Settings | None:
        self.circumstances = tune_memory.circumstances(
            state,
            tuple(sorted(one.name for one in self.choice.tunables)),
            command=self.session.plan.command,
            found=self.news.snapshot.found,
        )
        return None if self._arguments.fresh else tune_memory.recall(self.circumstances)


def _ask(arguments: argparse.Namespace) -> None:
    """Ask on a terminal whether levers may be tried that compute other numbers."""
    is_decided = arguments.numerics or arguments.only or arguments.json or arguments.quiet
    if not is_decided and on_terminal():
        arguments.numerics = ask(QUESTION).strip().lower() in ("y", "yes")


# ── the end ─────────────────────────────────────────────────────────────────────────────


def conclude(tune: Tune, arguments: argparse.Namespace, ended: Ended) -> int:
    code = _conclude(tune, arguments, ended)
    return code if ended.failed is None or tune.is_whole else ended.failed


def _conclude(tune: Tune, arguments: argparse.Namespace, ended: Ended) -> int:
    tuning, snapshot, interrupted = tune.tuning, ended.snapshot, ended.interrupted
    if tuning is None:
        return ended.without("verdict", tune.failure)
    why = "interrupted" if interrupted else ended.why
    tuning.cancel(why)
    _remember(tune, tuning)
    found = document(tuning, snapshot, tune.choice.left_out, arguments.price)
    if arguments.json:
        following = after_tune(found.best, arguments, ran_out=found.ran_out)
        found = msgspec.structs.replace(found, next=following)
    text = "\n".join(lines(tuning, tune.choice.left_out, arguments.price))
    say_found(found, text, as_json=arguments.json)
    if tuning.hurt:
        complain(f"gpudash: {tuning.hurt}")
    if tuning.verdict is None:
        known = why if interrupted or tuning.cut_short else tuning.failure
        complain(f"gpudash: no verdict: {known}{_so_far(tuning)}")
        return Exit.INTERRUPTED if interrupted else Exit.FAILED
    if arguments.save is not None:
        _save(arguments, snapshot.workload, tuning.best)
    if tuning.cut_short:
        complain(f"gpudash: {why} before the proof was over")
    if interrupted and tuning.cut_short:
        return Exit.INTERRUPTED
    return Exit.NOT_SHOWN if arguments.exit_code and not tuning.best else Exit.DONE


def _remember(tune: Tune, tuning: Tuning) -> None:
    """Keep what a whole search has proven; forget what failed its proof."""
    if tune.circumstances is None or tuning.verdict is None or tuning.cannot_tell:
        return
    is_whole = not tuning.cut_short and not tuning.search.ran_out
    if tuning.was_known or is_whole:
        tune_memory.remember(tune.circumstances, tuning.best)


def _save(arguments: argparse.Namespace, workload: str, best: Settings) -> None:
    name, path = arguments.save, arguments.project_file
    if not best:
        complain(f"gpudash: no profile {name} was saved: nothing was proven to be faster")
        return
    tune_memory.save_profile(path, name, workload, best)
    complain(f"saved [profiles.{name}] to {shown(path)}: gpudash {workload} --profile {name}")


def _so_far(tuning: Tuning) -> str:
    if not tuning.leader:
        return ""
    return f"; the best so far, not proven: {phrase(tuning.leader)}"


def progress(tuning: Tuning) -> str:
    course, found = tuning.course, tuning.course.found
    if not course.is_proving:
        return f"{tuning.doing}, {course.spent_s:.0f} of {tuning.allowance.budget_s:.0f} s"
    known = f", {fmt.change(found.change, found.low, found.high)}" if found else ""
    return f"{tuning.doing}, {fmt.pairs(course.pairs)}{known}"


def document(
    tuning: Tuning,
    snapshot: Snapshot,
    left_out: tuple[LeftOut, ...] = (),
    price: float | None = None,
) -> TuneReport:
    search, found = tuning.search, tuning.search.found
    proof = tuning.shown()
    return TuneReport(
        workload=snapshot.workload,
        device=snapshot.device.name if snapshot.device else None,
        best=tuning.best,
        leader=tuning.leader,
        start=tuning.start,
        verdict=tuning.verdict,
        why_none=tuning.failure,
        change=found.change if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        confidence=found.confidence if found else None,
        pairs=search.pairs,
        energy=proof.energy,
        why_no_energy=proof.why_no_energy,
        costs=costs(price, proof),
        tried=search.tried,
        left_out=left_out,
        remembered=tuning.was_known,
        ran_out=search.ran_out,
        budget_s=tuning.allowance.budget_s,
        spent_s=search.spent_s,
        compiled_s=search.compiled_s,
        core_wait_pct=tuning.core_wait_pct,
        harm=tuning.hurt or None,
    )


def lines(
    tuning: Tuning, left_out: tuple[LeftOut, ...] = (), price: float | None = None
) -> Iterator[str]:
    search = tuning.search
    if search.tried:
        yield "tried, each against the best of then:"
        yield from _tried_lines(search.tried)
    elif tuning.was_known:
        yield "an earlier tune of this training tried the levers; --fresh tries them again"
    if left_out:
        yield f"not tried: {'; '.join(reasons(left_out))}"
    if search.ran_out:
        budget_s = tuning.allowance.budget_s
        yield f"{budget_s:.0f} s did not suffice to try everything; --budget {2 * budget_s:.0f}"
    if tuning.verdict is None:
        return
    yield tuning.verdict
    if tuning.leader:
        proof = tuning.shown()
        yield from worth_lines(proof, price, energy=tuning.energy)
    if tuning.leader and not tuning.best:
        yield f"the start stays: no gain above {100 * LEAST:g} % is proven"
    for lever, value in tuning.best.items():
        yield ""
        yield from _recipe(tuning, lever, value)


def _tried_lines(tried: Sequence[Tried]) -> Iterator[str]:
    told = [one for one in tried if is_told(one)]
    width = max(len(change_of(one)) for one in told)
    for one in told:
        yield f"  {change_of(one).ljust(width)}  {worth_of(one)}"
    if others := len(tried) - len(told):
        yield f"  and {others} combination{'s' * (others > 1)} of these, none of them faster"


def _recipe(tuning: Tuning, name: str, value: str) -> Iterator[str]:
    (lever,) = (one.lever for one in tuning.tunables if one.name == name)
    found = {value: recipe(name, value)}
    about = Shown(lever=name, summary=lever.summary, source=lever.source, recipes=found)
    yield from recipe_lines(about)
