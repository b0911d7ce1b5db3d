"""Fold a run's events and samples into the snapshot that a screen shows.

Neither its memory nor the cost of a snapshot grows with the run. It reads no clock: callers pass
`now_s`. What each rank tells is folded in `ranks/`. Owners of device memory are worded
here too.
"""

from collections import deque
from collections.abc import Iterable
from typing import Literal

from msgspec.structs import asdict, replace

from gpudash import format as fmt
from gpudash.metrics import process_reading
from gpudash.protocol.commands import (
    PROFILE_LIMIT_S,
    AnyCommand,
    Blocks,
    Change,
    Pause,
    Plan,
    Profile,
    Resume,
    Stop,
)
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.inspections import CodeLines, MemoryOwners, Owner, Profiled, Rehearsed
from gpudash.protocol.readings import GpuMissing, GpuReading, HostReading, OtherJobs, Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.session import (
    ComparisonShown,
    NewRow,
    Notice,
    Playback,
    SlowingShown,
)
from gpudash.protocol.training import (
    Aside,
    BlocksEnded,
    Hello,
    Note,
    Offered,
    Progress,
    Refused,
    State,
    Status,
    Step,
)
from gpudash.ranks.job import Ranks
from gpudash.ranks.recent import UNKNOWN, Rate
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import (
    AB,
    ASIDES,
    ENDED,
    SLOWING,
    BlockShown,
    Hang,
    Marker,
    MarkerKind,
    Run,
    ShownState,
    Snapshot,
    Training,
)
from gpudash.views.settings_history import SettingsHistory
from gpudash.views.timeseries import Ticks
from workloads.levers import phrase


def owners_title(memory: MemoryOwners) -> str:
    when = "over two steps" if memory.answers else "when memory ran out"
    return f"device memory: at most {fmt.memory(memory.peak_mib)} in tensors {when}"


def owner_lines(memory: MemoryOwners) -> list[str]:
    if not memory.owners:
        return ["nothing was allocated"]
    sizes = [fmt.memory(one.mib) for one in memory.owners]
    width, widest = max(map(len, sizes)), max(len(one.use) for one in memory.owners)
    return [
        f"{size:>{width}}  {one.use:<{widest}}  {_place(one)}"
        for size, one in zip(sizes, memory.owners, strict=True)
    ]


def _place(one: Owner) -> str:
    times = f", {one.count} allocations" if one.count > 1 else ""
    if not one.file:
        return f"line not known{times}"
    return fmt.plain(f"{fmt.source_line(one.file, one.line)} in {one.function}{times}")


STALL_S = 2.0
"""A step that takes longer than this, and than three times the longest recent one, is a stall. Its
ticks are drawn as standing still; those of a shorter step are drawn once it is finished."""
QUIET_S = 5.0
"""A wait is mentioned after this time, and three times the longest recent step: a first step takes
seconds."""
OTHERS_S = 10.0
"""Other jobs are shown for so long after they were read: they are read while cores are lacking."""
PASSING_S = 10.0
"""Why a profile or the memory owners were refused is shown for so long: the training does not
depend on it, and the log keeps it."""
MOST_MARKERS = 200
MOST_ASIDES = 1000
MOST_BLOCKS = 400
"""Five comparisons of forty pairs."""
MOST_VERDICTS = 50
MARKED_S = 1.0
"""An evaluation or a checkpoint of at least this length is marked on the time axis."""
INSTRUMENT_REPORTS = 100
"""Reports (five seconds) over which the instruments' own time is averaged."""


class LiveView:
    """Folds the messages of all ranks in order of arrival; `snapshot` returns what to show."""

    def __init__(self, plan: Plan, began_s: float) -> None:
        self.ranks = Ranks()
        self._known = Training()
        self._verdicts: deque[tuple[str, ComparisonShown]] = deque(maxlen=MOST_VERDICTS)
        self._began_s = began_s
        self._ticks = Ticks(began_s)
        self._results = SettingsHistory()
        self._other_results: dict[str, SettingsHistory] = {}  # of other workloads
        self._workload_began_s = 0.0  # when the present workload began
        self._markers: deque[Marker] = deque(maxlen=MOST_MARKERS)
        self._asides: deque[Marker] = deque(maxlen=MOST_ASIDES)
        self._blocks: deque[BlockShown] = deque(maxlen=MOST_BLOCKS)
        self._block_segment = -1  # of the newest
        self._other_jobs: OtherJobs | None = None  # as read last
        self._await("starting")
        self._plan(plan)

    def take(self, envelope: Envelope) -> None:
        self.ranks.take(envelope)
        if not envelope.rank:
            self._fold(envelope.body)

    def _fold(self, item: Event | Reading) -> None:
        for answered in getattr(item, "answers", ()):
            self._requests.pop(answered, None)
        match item:
            case Progress():
                self._progress(item)
            case GpuReading() if item.uuid != self.ranks.gpu_uuid:
                pass
            case GpuReading() | HostReading():
                self._read(item)
            case OtherJobs():
                self._other_jobs = item
            case State():
                self._turn(item)
            case Refused():
                self._refuse(item)
            case Playback():
                self._known.playback = item
            case Profiled():
                self._known.profile = item
                self._known.profile_of = self._known.workload, self._known.settings
            case _:
                self._fold_training(item)
                self._fold_session(item)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The newest `MOST_MARKERS`, also those of earlier workloads."""
        return tuple(self._markers)

    def snapshot(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        rate = self._rate(now_s, hangs=hang is not None)
        lead, process = self.ranks.lead, self._state.process
        whole = self.ranks.of_all(lead.report)
        ended_s = now_s if self._ended_s is None else self._ended_s
        verdicts = (one for workload, one in self._verdicts if workload == self._known.workload)
        # only a script has to be asked for its levers
        levers = self._known.levers or reference_levers(self._known.workload, self._known.settings)
        return Snapshot(
            **asdict(self._known) | {"levers": levers},
            **rate._asdict(),
            state=self._word(),
            status=self._status(now_s),
            notice=self._notice,
            refused=self._notice == self._refusal != "",
            doing=self._doing,
            at_s=now_s,
            elapsed_s=max(ended_s - self._began_s, 0.0),
            training_s=None if process is None else max(ended_s - process.ready_s, 0.0),
            worker_pid=None if process is None else process.pid,
            process=process,
            device=None if process is None else process.device,
            versions={} if process is None else process.versions,
            total_steps=whole.total_steps,
            total_samples=whole.total_samples,
            loss=whole.loss,
            transform_ms=whole.transform_ms,
            skipped_samples=whole.skipped_samples,
            ranks=self.ranks.rows(now_s, hang=hang is not None),
            pending=self._pending,
            pausing=self._pausing,
            quiet_s=self._quiet_s(now_s),
            hang=hang,
            gpu=self.ranks.gpu_now() if self._known.gpu_missing is None else None,
            host=lead.host_now(),
            other_jobs=self._others_now(ended_s),
            series=self._ticks.series(),
            recent=self._ticks.recent(),
            markers=tuple(one for one in self._markers if one.at_s >= self._workload_began_s),
            asides=tuple(one for one in self._asides if one.at_s >= self._workload_began_s),
            blocks=tuple(self._blocks),
            results=self._results.results(live=self._trains and not self._in_blocks),
            others=tuple(self._other_results),
            profiling=any(isinstance(one, Profile) for one in self._requests.values()),
            verdicts=tuple(verdicts),
            instruments_ms=self._instruments_ms(),
        )

    def _await(self, sentence: str) -> None:
        state = self._state
        kept = {name: getattr(self._known, name) for name in Run.__struct_fields__}
        self._known = Training(
            workload=state.workload, settings=state.settings, requested=state.requested, **kept
        )
        self._progress_of_start = sentence
        self._notice = ""  # shown beside the state, until the next change of state
        self._refusal = ""  # the newest notice of a refusal
        self._passing_notice = ("", 0.0)  # a notice that expires, and when
        self._instruments: deque[tuple[float, int]] = deque(maxlen=INSTRUMENT_REPORTS)
        self._untrained_settings: Settings = {}  # of the newest change, until its first step
        self._verdict = ""  # or why there is none; shown once the blocks are over
        self._requests: dict[int, AnyCommand] = {}  # not answered yet, in order

    def _plan(self, plan: Plan) -> None:
        known = self._known
        known.planned_steps, known.planned_s = plan.steps, plan.duration_s
        if self._state.process is None:
            known.workload, known.settings = plan.workload, plan.settings
            known.requested = plan.settings

    def _send(self, command: AnyCommand) -> None:
        self._requests[command.id] = command
        if isinstance(command, Change):
            self._notice = ""
        if isinstance(command, Profile):
            self._known.profile_refusal = ""

    def _restart(self, state: State) -> None:
        """Keep series, markers and results, unless the workload is another one."""
        workload = state.workload
        self._leave_block(state.at_s)
        if state.at_s < self._began_s:  # a recording that begins with it
            pass
        elif workload == self._known.workload:
            self._mark("restart", state.at_s, "restart")
        else:
            self._begin_anew(workload, state.at_s)
            self._mark("change", state.at_s, f"workload={workload}")
        self._await("restarting")

    def _begin_anew(self, workload: str, at_s: float) -> None:
        """Show nothing of the workload before; its results are shown when it trains again."""
        self._known.comparison = self._known.slowing = None
        self._known.code = self._known.rehearsed = None
        self._blocks.clear()
        self._ticks, self._workload_began_s = Ticks(self._began_s), at_s - self._began_s
        self._other_results[self._known.workload] = self._results
        self._results = self._other_results.pop(workload, SettingsHistory())

    def _conclude(self, verdict: str) -> None:
        if self._in_blocks:  # shown once the worker is back at its settings
            self._verdict = verdict
        else:
            self._notice = verdict

    def _compare(self, shown: ComparisonShown) -> None:
        known, before = self._known, self._known.comparison
        others = {name: value for name, value in known.settings.items() if name != shown.lever}
        known.comparison = replace(shown, settings=others)
        if shown.verdict is not None and (before is None or before.verdict is None):
            self._conclude(shown.verdict)
            if shown.goes_on and self._verdicts:
                self._verdicts.pop()
            self._verdicts.append((known.workload, known.comparison))

    def _fold_session(self, item: Event) -> None:
        match item:
            case Change() | Pause() | Resume() | Stop() | Blocks() | Profile():
                self._send(item)
            case Hello():
                self._known.can = item.can
            case Plan():
                self._plan(item)
            case GpuMissing():
                self._known.gpu_missing, self._known.gpu_unread = item.why, item.values
                self._known.gpus_lost = item.others
            case ComparisonShown():
                self._compare(item)
            case SlowingShown():
                self._known.slowing = item
            case Notice():
                self._notice = item.text
            case NewRow():
                self._results.new_row()

    def _fold_training(self, item: Event) -> None:
        match item:
            case Status():
                self._progress_of_start, self._known.awaits = item.text, item.awaits
            case CodeLines():
                self._known.code = item
            case Rehearsed():
                self._known.rehearsed = item
            case MemoryOwners():
                self._known.memory_owners = item
            case Offered():
                self._known.found, self._known.levers = item.found, item.levers
                self._known.levers_complete = item.complete
                self._results.offered({one.name: one.default for one in item.levers})
            case BlocksEnded():
                self._notice, self._verdict = self._verdict, ""

    # ── the life of the training ────────────────────────────────────────────────────────

    @property
    def _state(self) -> State:
        return self.ranks.lead.state

    @property
    def _trains(self) -> bool:
        """Whether a worker is ready; it may pause, or be gone while its command still runs."""
        return self._state.phase in ("training", "paused", "parted")

    @property
    def _stands(self) -> bool:
        return self._state.phase == "paused"

    @property
    def _in_blocks(self) -> bool:
        return self._state.run is not None

    @property
    def _is_slowing(self) -> bool:
        return self._known.slowing is not None and not self._known.slowing.is_over

    @property
    def _ended_s(self) -> float | None:
        return self._state.since_s if self._state.phase in ENDED else None

    def _turn(self, state: State) -> None:
        if state.phase == "starting":
            self._restart(state)
            return
        if "starts" in state.turns:
            self._start(state)
        elif "changes" in state.turns:
            self._change(state)
        if state.phase in ENDED:
            self._end(state)
        elif "pauses" in state.turns and state.why == "asked":
            self._mark("asked", state.at_s, "paused")
            self._notice = ""
        elif state.stood is not None and state.phase == "training":
            self._resume(state, *state.stood)

    def _resume(self, state: State, why: Aside, since_s: float) -> None:
        if why == "asked":
            self._mark("asked", state.at_s, "resumed")
            self._notice, self._known.steps_since_break = "", 0
            return
        lasts_s = state.at_s - since_s
        self._asides.append(
            Marker(kind=why, at_s=since_s - self._began_s, label=why, lasts_s=lasts_s)
        )
        if lasts_s >= MARKED_S:
            self._markers.append(self._asides[-1])

    def _start(self, state: State) -> None:
        known, process = self._known, state.process
        assert process is not None, "it has started"
        if "replaces" in state.turns:
            self._mark(
                "restart", process.ready_s, "restart"
            )  # torchrun restarts all ranks if one fails
        self._untrained_settings = {}
        known.steps_since_break = 0
        known.slowing = known.code = known.rehearsed = None
        known.workload, known.settings = state.workload, state.baseline or state.settings
        known.requested, known.notes = state.requested, _texts(state.notes)
        known.phases, known.bus_gb_s = process.phases, process.bus_gb_s
        self._ticks.begin(process.ready_s)
        segment = state.segment - self._in_blocks  # a block belongs to no row
        self._results.start(segment, state.workload, known.settings)
        if self._in_blocks:
            self._begin_blocks(state)

    def _change(self, state: State) -> None:
        self._leave_block(state.at_s)
        self._known.steps_since_break = 0
        if not self._in_blocks:
            self._enter(state)
        elif "blocks" in state.turns:
            self._begin_blocks(state)
        else:
            self._enter_block(state)

    def _begin_blocks(self, state: State) -> None:
        # blocks are too short for a row, a marker and settings of their own
        self._notice = ""
        self._mark("blocks", state.at_s, SLOWING if self._is_slowing else AB)
        self._enter_block(state)

    def _enter_block(self, state: State) -> None:
        shown = self._known.comparison if not self._is_slowing else None
        value = state.settings.get(shown.lever) if shown and state.block is not None else None
        if shown is not None and value in (shown.a, shown.b):
            side: Literal["a", "b"] = "a" if value == shown.a else "b"
            self._blocks.append(BlockShown(begin_s=state.at_s - self._began_s, side=side))
            self._block_segment = state.segment

    def _settle(self, step: Step) -> None:
        """Note how long steps do not count: a full loader gives the first ones at once."""
        if self._blocks and step.segment == self._block_segment and not step.warm:
            counts_s = step.finished_s - self._began_s
            self._blocks[-1] = replace(self._blocks[-1], counts_s=counts_s)

    def _leave_block(self, at_s: float) -> None:
        if self._blocks and self._blocks[-1].end_s is None:
            self._blocks[-1] = replace(self._blocks[-1], end_s=at_s - self._began_s)

    def _enter(self, state: State) -> None:
        self._known.notes, self._known.requested = _texts(state.notes), state.requested
        changes = state.changes
        if state.answers:
            self._notice = ""
        if "blocks" in state.turns:  # the worker's changes are those since the last block
            changes = {k: v for k, v in state.settings.items() if v != self._known.settings.get(k)}
            if not changes:
                self._mark("blocks", state.at_s, f"end of {SLOWING if self._is_slowing else AB}")
        if not changes:
            self._results.go_on(state.segment)
            return
        self._known.settings, self._untrained_settings = state.settings, changes
        self._known.slowing = self._known.code = self._known.rehearsed = None
        self._mark("change", state.at_s, phrase(changes))
        self._results.change(state.segment, state.settings)

    def _refuse(self, event: Refused) -> None:
        reason = self._refusal = f"refused: {event.reason}"  # the reason names the lever
        if event.kind == "no_profile":
            self._known.profile_refusal = event.reason
        if event.kind in ("no_profile", "no_memory_owners"):
            self._passing_notice = reason, self.ranks.lead.busy_since_s + PASSING_S
        if event.block is None:
            self._notice = reason
        elif not self._is_slowing:  # it shows why a part is not slowed
            self._verdict = reason

    def _progress(self, own: Progress) -> None:
        lead = self.ranks.lead
        report = self.ranks.of_all(replace(own, steps=tuple(step for step, _ in lead.newest)))
        busy_since_s, (passing, until_s) = lead.busy_since_s, self._passing_notice
        if self._notice == passing and report.until_s > until_s:
            self._notice = ""
        if self._untrained_settings and any(
            one.segment >= self._state.segment for one in report.steps
        ):
            self._untrained_settings = {}
        has_own_gpu = self.ranks.has_own_gpu  # else its energy is not that of rank 0's samples
        for step, (of_rank, each) in zip(report.steps, lead.newest, strict=True):
            self._ticks.step(step)
            self._settle(step)
            self._results.step(
                step, of_rank if has_own_gpu else replace(of_rank, samples=None), each
            )
            self._known.steps_since_break = step.since_break
        if report.steps or not self._stands:
            steps = sum(step.count for step in report.steps)
            self._instruments.append((report.instruments_ms, steps))
        memory = process_reading(report)
        if memory is not None:
            self._read(memory)
        if own.loss is not None:
            self._ticks.loss(own.until_s, own.loss)
        quiet_s = report.until_s - busy_since_s
        waiting = not self._stands and not self._is_late(quiet_s, STALL_S)
        self._ticks.cover(busy_since_s if waiting else report.until_s)

    def _read(self, reading: Reading) -> None:
        if self._ended_s is None or reading.at_s <= self._ended_s:  # charts end with the training
            self._ticks.read(reading)
        self._results.sample(reading)

    def _end(self, state: State) -> None:
        self._leave_block(state.at_s)
        if state.phase == "finished":
            self._ticks.cover(state.at_s)
        self._notice = ""
        self._requests = {}  # nobody is left to answer

    def _mark(self, kind: MarkerKind, at_s: float, label: str) -> None:
        self._markers.append(Marker(kind=kind, at_s=at_s - self._began_s, label=label))

    @property
    def _pending(self) -> Settings:
        active, asked = self._known.settings, Settings()
        for command in self._requests.values():
            if isinstance(command, Change):
                asked |= command.settings
        return {name: value for name, value in asked.items() if active.get(name) != value}

    @property
    def _pausing(self) -> bool | None:
        """None without a request to pause (True) or to go on (False)."""
        asked = [one for one in self._requests.values() if isinstance(one, Pause | Resume)]
        return isinstance(asked[-1], Pause) if asked else None

    @property
    def _is_paused(self) -> bool:
        return self._stands and self._state.why == "asked"

    def _word(self) -> ShownState:
        if self._is_paused:
            return "paused"
        match self._state.phase:
            case "training" | "paused" | "parted":
                return "switching" if self._pending else "training"
            case phase:
                return phase

    @property
    def _doing(self) -> Aside | None:
        by_itself = self._state.phase == "paused" and self._word() == "training"
        return self._state.why if by_itself else None

    def _status(self, now_s: float) -> str:
        state, first = self._state, self._first_step(now_s)
        match self._word():
            case "training" if (doing := self._doing) is not None:
                sentence = ASIDES[doing]
            case "training" if self._is_slowing:
                sentence = "slowing one part of the step after another"
            case "training" if (shown := self._known.comparison) and self._in_blocks:
                sentence = _comparing(shown)
            case "switching":
                wanted = ", ".join(f"{name} to {value}" for name, value in self._pending.items())
                sentence = f"{first}; then {wanted}" if first else f"switching {wanted} …"
            case "starting":
                sentence = self._progress_of_start
            case "finished":
                sentence = f"finished after {fmt.steps(state.after_step)}"
            case "failed" if state.failure is not None:
                sentence = state.failure.sentence.rstrip(". ")
            case word:
                sentence = first if word == "training" else word
        return sentence

    def _first_step(self, now_s: float) -> str:
        """Name the settings that the worker tries: the newest request may be for others."""
        if not self._untrained_settings or self._stands or self._in_blocks:
            return ""
        for_s = now_s - max(self.ranks.lead.busy_since_s, self._state.at_s)
        if for_s < STALL_S:
            return ""
        tried = ", ".join(f"{name} {value}" for name, value in self._untrained_settings.items())
        return f"first step with {tried}: {for_s:.0f} s so far"

    def _quiet_s(self, now_s: float) -> float | None:
        if self._word() not in ("training", "switching"):
            return None
        quiet_s = now_s - self.ranks.lead.busy_since_s
        if self._stands:
            if self._state.why != "profile":
                return None
            # profiled steps are not reported; a profile ends within this limit
            quiet_s = now_s - self._state.since_s - PROFILE_LIMIT_S
        return quiet_s if self._is_late(quiet_s, QUIET_S) else None

    def _is_late(self, quiet_s: float, least_s: float) -> bool:
        return quiet_s > least_s and quiet_s > 3 * self.ranks.lead.recent.longest_s()

    def _others_now(self, now_s: float) -> OtherJobs | None:
        read = self._other_jobs
        return read if read is not None and now_s - read.at_s < OTHERS_S else None

    def _instruments_ms(self) -> float | None:
        steps = sum(steps for _, steps in self._instruments)
        return sum(ms for ms, _ in self._instruments) / steps if steps else None

    def _rate(self, now_s: float, *, hangs: bool) -> Rate:
        idles = self._stands and self._state.why == "idle"
        if idles or self._state.phase in ENDED:  # that of the last cell, or of the end, stays
            return self.ranks.rate(self.ranks.lead.busy_since_s, rests=False)
        if not self._trains:
            return UNKNOWN
        rests = self._is_paused or hangs or self._quiet_s(now_s) is not None
        return self.ranks.rate(now_s, rests=rests)


def _texts(notes: Iterable[Note]) -> tuple[str, ...]:
    return tuple(note.text for note in notes)


def _comparing(shown: ComparisonShown) -> str:
    if shown.is_over:
        return f"the {'tune' if shown.doing else 'A/B'} is over"
    if shown.doing:
        return f"tune: {shown.doing}"
    pairs = f"{shown.pairs} of {shown.planned_pairs} pairs"
    return f"A/B: {shown.lever} {shown.a} or {shown.b}, {pairs}"
