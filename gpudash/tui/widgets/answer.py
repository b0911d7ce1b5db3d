"""The answer strip: what limits the training, the lanes of a step, and what to try."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rich.cells import cell_len, set_cell_size

from gpudash import format as fmt
from gpudash.availability import unable
from gpudash.diagnosis.headline import Headline
from gpudash.present.axes import TimeView
from gpudash.present.cells import Parts, clauses_in, fitted, whole, width_of
from gpudash.present.readings import step_value
from gpudash.protocol.answer import Lane, Part, Try
from gpudash.protocol.training import StartStage
from gpudash.snapshot import Snapshot, compares_starts, runs_on
from gpudash.tui.arrangement import ANSWER_ROWS
from gpudash.tui.keys import key_for
from gpudash.tui.widgets.comparison import time_left
from gpudash.tui.widgets.panel import THIN, Panel

NAME_WIDTH = 8
"""Most columns of a lane's name."""
MOST_CAPITALS = 40
"""Most characters of a title in capitals."""
LIMIT_INKS: Mapping[str, str] = {
    "data": "line-0",
    "copy": "line-1",
    "communication": "line-7",
    "straggler": "line-7",
    "launch": "host",
    "host": "host",
    "sync": "host",
    "allocator": "host",
    "gc": "host",
    "compiling": "host",
    "own_code": "line-10",
    "blocked": "line-10",
    "rollout": "line-8",
    "asides": "busy",
    "cores": "busy",
    "shared_gpu": "busy",
    "throttled": "busy",
    "silent": "bad",
    "compute": "rate",
    "memory": "rate",
    "gpu": "rate",
    "cpu": "rate",
}
"""The hue of a limit: that of its part in lanes and charts."""
LEAST_BAR = 10
"""Fewest columns of a lane with text beside it."""
EDGE, IDLE = "▏", "·"
"""An edge begins each part and ends a lane, so that parts are distinct without colour too."""
STAGES: Mapping[StartStage, str] = {
    "process": "process",
    "torch": "torch",
    "model": "model",
    "step": "first training step",
}
"""The stages of a start, in order; when a script has its model is not known."""


class AnswerStrip(Panel):
    """The answer. A click runs `try_it`, `why` or `compare`."""

    ruled = False
    _now: tuple[object, ...] = ()  # all of what follows
    _shown = Headline(kind="starting", title="starting")
    _stages: tuple[str, ...] = ()
    _meanwhile: tuple[str, ...] = ()
    _took = ""
    _rates: tuple[str, ...] = ()
    _left = ""
    _can_try = True
    _lane_count = 0

    def show(self, shown: Headline, snapshot: Snapshot, last_s: float | None = None) -> None:
        """`last_s` is how long the last run's start took."""
        starting, compared = shown.kind == "starting", snapshot.comparison
        is_known = starting and last_s is not None and not compares_starts(snapshot)
        now = (
            shown,
            start_stages(snapshot) if starting else (),
            _start_hints(snapshot) if starting else (),
            f"about {last_s:.0f} s here last time" if is_known else "",
            tuple(_rates(snapshot)),
            unable("blocks", snapshot) is None,
            time_left(compared, snapshot.blocks) if compared and not compared.is_over else "",
        )
        if now != self._now:
            self._now = now
            self._shown, self._stages, self._meanwhile, self._took = now[:4]
            self._rates, self._can_try, self._left = now[4:]
            self._lane_count = len(shown.lanes) if shown.step_ms else self._lane_count
            self.repaint()

    @property
    def lanes(self) -> int:
        """The number of lanes, the newest that were known: their place stays."""
        return self._lane_count

    # ── painting ────────────────────────────────────────────────────────────────────────

    def body(self, width: int, height: int) -> Iterator[Parts]:
        shown, room = self._shown, width - 2
        hue = LIMIT_INKS.get(shown.kind, "border")
        bar = ("▌ ", hue)
        if shown.kind == "starting":
            stages = (("starting  ", "strong"), (whole(self._stages, room - 10, "  "), "text"))
            took: Parts = ((self._took, "dim"),) if self._took else ()
            first = _apart(stages, took, room) if width_of((*stages, *took)) < room else stages
            hints = [((fmt.clip(hint, room), "dim"),) for hint in self._meanwhile]
            rows: Sequence[Parts] = [first, *hints]
            yield from ((bar, *row) for row in rows)
            return
        if self._says_limit:
            text = "".join(text for text, _ in self._limit(room))
            yield ((set_cell_size(f"  {text}", width), f"band-{hue}"),)
        else:
            yield (bar, *self._limit(room))
        yield (bar, *self._reason(room))
        yield (bar, *self._action(room))
        if height > ANSWER_ROWS:
            yield from self._lanes(width, height - ANSWER_ROWS - 1)

    @property
    def _says_limit(self) -> bool:
        return self._shown.kind in LIMIT_INKS

    def _limit(self, width: int) -> Parts:
        shown = self._shown
        is_word = self._says_limit and len(shown.title) <= MOST_CAPITALS
        title = shown.title.upper() if is_word else shown.title
        evidence = shown.evidence[0] if shown.evidence else ""
        rates = ["   ".join(self._rates[:count]) for count in range(len(self._rates), 0, -1)]
        alone = cell_len(title) + 3
        lefts = (alone + cell_len(evidence) + 3, alone)  # else the evidence goes to the next row
        fits = (text for left in lefts for text in rates if left + cell_len(text) <= width)
        right = next(fits, "")
        room = width - (cell_len(right) + 3 if right else 0)
        title = fitted(title, min(room, cell_len(title))).rstrip()
        evidence = whole((evidence,), room - cell_len(title) - 3)
        left: Parts = ((title, "strong"), (f"   {evidence}" if evidence else "", "text"))
        return _apart(left, ((right, "strong"),), width)

    def _reason(self, width: int) -> Parts:
        shown = self._shown
        first = self._limit(width)
        said = "".join(text for text, _ in first)
        left = [clause for clause in shown.evidence if clause not in said]
        if shown.kind == "cores" and shown.caution and left[:1] == [*shown.evidence[:1]]:
            left = [*left[1:], left[0]]  # the caution has the other jobs, too
        answer = shown.answer if shown.kind != "measuring" else None
        proven = answer is not None and answer.is_proven and not shown.caution
        right: Parts = (("✓ proven by slowing it", "better"),) if proven else ()
        room = width - width_of(right) - 3 * proven
        return _apart(((clauses_in(left, room, "; "), "text"),), right, width)

    def _action(self, width: int) -> Parts:
        shown, first = self._shown, self._shown.first
        if shown.kind == "comparing":
            ends: Parts = (((f"{key_for('compare')} ", "key"), ("ends it   ", "text"))
                           if self._can_try else ())  # fmt: skip
            takes = f"{self._left}   " if self._left else ""
            room = max(width - width_of(ends) - cell_len(takes), 0)
            caution = fmt.clip(_caution(shown.caution, room), room)
            return (*ends, (takes, "dim"), (caution, "busy"))
        if shown.waits is not None:
            return self._waiting(shown.waits, width)
        if first is not None:
            return self._proposal(first, width)
        if shown.caution:
            return ((fmt.clip(_caution(shown.caution, width), width), "busy"),)
        return ((fmt.clip(self._nothing(), width), "dim"),)

    def _proposal(self, first: Try, width: int) -> Parts:
        assert first.gain is not None
        change = fmt.plain(f"{first.lever} {first.before} → {first.value}")
        takes = f"about {first.takes_s} s" if first.takes_s is not None else ""
        rest = [one for one in (takes, "undone afterwards") if one]
        told, caution = f"TRY {change}", self._shown.caution
        if first.gain.measured:  # it is set at once
            told, caution, rest = f"SET {change}", "", ["proven here"]
        key, gain = f" {key_for('try_it')} ", f"   {first.gain.label}"
        least = _caution(caution, 0)
        if cell_len(key + told + gain + least) + 4 * bool(least) >= width:
            gain = ""  # the ledger has it
        left = width - cell_len(key + told + gain) - 4
        waits = (least, "it waits until they end")
        after = whole(waits, left, ": ") if caution else whole(rest, left, ", ")
        return (
            (key, "cap"),
            (" ", ""),
            (fmt.clip(told, max(width - len(key) - 1, 0)), "strong"),
            (gain, "text"),
            (f"   {after}".rstrip(), "busy" if caution else "dim"),
        )

    def _waiting(self, waits: Try, width: int) -> Parts:
        told = f"{waits.lever} {waits.before} → {waits.value} waits until other jobs end"
        keys = (
            f"{key_for('try_it')} begins it now",
            f"{key_for('screen.leave_level')} takes it back",
        )
        told = fmt.clip(fmt.plain(told), width - 3)
        room = max(width - cell_len(told) - 6, 0)
        return (" ◌ ", "busy"), (told, "strong"), (f"   {whole(keys, room, ', ')}", "dim")

    def _nothing(self) -> str:
        """Return why there is nothing to press, or what can be tried all the same."""
        shown, passing = self._shown, ("silent", "paused", "profiling", "switching")
        if shown.kind == "ended" and shown.answer is not None:
            tries = (one.promise for one in shown.answer.tries if one.gain is not None)
            said = next((f"next: {one}" for one in tries), "nothing foreseen")
            return f"{said}; {key_for('try_it')} needs a running training"
        if shown.kind in passing or not self._can_try:
            return ""
        if shown.kind == "measuring":
            return f"{key_for('try_it')} has a proposal then, if any lever helps"
        names = ", ".join(dict.fromkeys(fmt.plain(one.lever) for one in shown.tries))
        untried = f"; untried: {names}" if names else ""
        keys = f"{key_for('compare')} tries one, {key_for('tune')} tries all"
        until = " until other jobs end" * (shown.kind == "cores")
        return f"nothing foreseen{until}{untried}   {keys}"

    def _lanes(self, width: int, rows: int) -> Iterator[Parts]:
        """Yield the lanes on one scale: a column is the same moment of the step in all."""
        shown = self._shown
        if not shown.step_ms:
            yield ((f" {THIN * (width - 1)}", "border"),)
            return
        step_ms = shown.step_ms
        is_before = shown.answer is not None and shown.kind in ("comparing", "measuring")
        head = f"one step{' before' * is_before} · {fmt.milliseconds(step_ms)} ms"
        line = THIN * max(width - cell_len(head) - 4, 0)
        yield ((f" {THIN} ", "border"), (head, "dim"), (f" {line}", "border"))
        name_width = min(max((cell_len(one.name) for one in shown.lanes), default=0), NAME_WIDTH)
        texts = [_rest_text(one, step_ms) for one in shown.lanes]
        room = width - name_width - 4 - max(map(cell_len, texts), default=0)
        if room < LEAST_BAR:
            texts = [""] * len(texts)
            room = width - name_width - 3
        for one, text in zip(shown.lanes, texts, strict=True):
            name = fmt.clip(fmt.plain(one.name), name_width)
            row = [(f" {name}{' ' * (name_width - cell_len(name))} ", "dim")]
            for part, columns in spread(one, step_ms, max(room, 0)):
                row.append((printed(part, columns), part.ink) if part else (IDLE * columns, "idle"))
            row.append((f"{EDGE}{text}", "dim"))
            yield row
            below = [
                (part if ink == "idle" else set_cell_size(part[:1], cell_len(part)), ink)
                for part, ink in row
            ]
            yield from [below] * (rows // len(shown.lanes) - 1)

    # ── mouse ───────────────────────────────────────────────────────────────────────────

    def clicked(self, x: int, y: int) -> None:  # noqa: ARG002  # any column
        """Run `try_it` for a click on what to try, else `why`."""
        shown = self._shown
        if y == ANSWER_ROWS - 1 and shown.kind == "comparing":
            self.act("compare")
        elif y == ANSWER_ROWS - 1 and shown.first is not None:
            self.act("try_it")
        elif shown.lanes:
            self.act("why")


def _apart(left: Parts, right: Parts, width: int) -> Parts:
    gap = max(width - width_of(left) - width_of(right) - 1, 0)
    return (*left, (" " * gap, ""), *right)


def _rates(snapshot: Snapshot) -> Iterator[str]:
    known = {
        "samples/s": snapshot.samples_per_s,
        "steps/s": snapshot.steps_per_s,
        "tokens/s": snapshot.tokens_per_s,
    }
    if snapshot.state != "training" or snapshot.hang is not None:
        return
    for unit, value in known.items():
        if value is not None:
            yield f"{fmt.significant(value)} {unit}{_padding(snapshot) * (unit == 'tokens/s')}"


def _padding(snapshot: Snapshot) -> str:
    """Empty for several ranks, as the padding of only one is known."""
    padding, steps_per_s = step_value(snapshot, "padding_tokens", TimeView()), snapshot.steps_per_s
    if not padding or not steps_per_s or not snapshot.tokens_per_s or snapshot.ranks:
        return ""
    padded = padding * steps_per_s
    return f" and {fmt.percent(100 * padded / (padded + snapshot.tokens_per_s))} padding"


def start_stages(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the stages of a start: done, present with its time so far, and to come.

    Of two trainings' starts the times are not known here.
    """
    of_two = compares_starts(snapshot)
    of_script = of_two or runs_on(snapshot)
    stages = {one: name for one, name in STAGES.items() if not (of_script and one == "model")}
    now = [*stages].index(snapshot.awaits if snapshot.state == "starting" else "step")
    began_s = snapshot.markers[-1].at_s if snapshot.markers else 0.0
    waited = " …" if of_two else f" {max(snapshot.elapsed_s - began_s, 0.0):.0f} s …"
    return tuple(
        f"{'✓' if index < now else '◌' if index == now else '·'} {name}"
        f"{waited if index == now else ''}"
        for index, name in enumerate(stages.values())
    )


def _start_hints(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what can be done before the first step."""
    if runs_on(snapshot):
        script = fmt.plain(snapshot.workload)
        as_it_is = f"{script} runs as it would without gpudash, until you move a lever"
        return tuple(filter(None, (as_it_is, unable("levers", snapshot))))
    early = "levers work already: the first step uses what you set now"
    later = f"what limits it, and what {key_for('try_it')} can try, is known some steps later"
    return (*(early,) * ("levers" in snapshot.can), later)


def _rest_text(lane: Lane, step_ms: float) -> str:
    """Return the rest of the step in a lane as text; empty below 0.5 % of the step."""
    ms = fmt.milliseconds(lane.rest_ms)
    return f"{ms} {lane.rest}" if lane.rest_ms >= 0.005 * step_ms else ""


def spread(lane: Lane, step_ms: float, width: int) -> list[tuple[Part | None, int]]:
    """None stands for the rest; the columns add up to `width`."""
    ends, at_ms = [0], 0.0
    for part in lane.parts:
        at_ms += part.ms
        ends.append(min(max(round(at_ms / step_ms * width), ends[-1]), width))
    columns = [end - begin for begin, end in pairwise(ends)]
    return [*zip(lane.parts, columns, strict=True), (None, width - ends[-1])]


def printed(part: Part, columns: int) -> str:
    ms = fmt.milliseconds(part.ms)
    for label in (f"{part.label} {ms}", f"{part.short} {ms}", ms, part.short, ""):
        text = f"{EDGE}{fmt.plain(label)}"
        if cell_len(text) <= columns:
            return text + " " * (columns - cell_len(text))
    return ""


def _caution(text: str, width: int) -> str:
    """Return a caution, or where it does not fit its reason: the clause before the colon."""
    return text if cell_len(text) <= width else text.partition(": ")[0]
