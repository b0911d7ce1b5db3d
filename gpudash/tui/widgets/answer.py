"""The answer strip: what limits the training, the lanes of a step, and what to try."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.diagnosis.headline import INTERRUPTED, Headline
from gpudash.protocol.answer import Lane, Part, Try
from gpudash.snapshot import Snapshot, is_script
from gpudash.tui.bars import button
from gpudash.tui.cells import Parts, beside, cell, width_of
from gpudash.tui.keys import key_for
from gpudash.tui.widgets.panel import Panel, PanelFrame
from workloads.levers import phrase

NAME_WIDTH = 8
"""Most columns of a lane's name."""
TRIES_BESIDE = 150
"""Columns from which the proposals are beside the lanes."""
TRIES_WIDTH = 66
LEAST_BAR = 10
"""Fewest columns of a lane with text beside it."""
EDGE, IDLE = "▏", "·"
"""An edge begins each part and ends a lane, so that parts are distinct without colour too."""
STAGES = ("worker", "torch", "model", "first step")
"""The stages of a start, in order."""
OF_SCRIPT = ("started", "torch", "first training step")
"""The stages of a user's script."""


class AnswerStrip(Panel):
    """The answer strip. Its buttons run the actions `try_it` and `why`."""

    _shown = Headline(kind="starting", title="starting")
    _stages: tuple[str, ...] = ()
    _meanwhile: tuple[tuple[str, ...], ...] = ()
    _took = ""

    def show(self, shown: Headline, snapshot: Snapshot, last_s: float | None = None) -> None:
        """Update the headline; `last_s` is how long the last run's start took."""
        starting = shown.kind == "starting"
        stages = start_stages(snapshot) if starting else ()
        meanwhile = start_hints(snapshot) if starting else ()
        took = f"about {last_s:.0f} s here last time" if starting and last_s is not None else ""
        now = (shown, stages, meanwhile, took)
        if now != (self._shown, self._stages, self._meanwhile, self._took):
            self._shown, self._stages, self._meanwhile, self._took = now
            self.repaint()

    # ── painting ────────────────────────────────────────────────────────────────────────

    def frame(self) -> PanelFrame:
        """Return the answer as the title, and its buttons."""
        shown = self._shown
        right = [cell(self._took, "dim", rank=2)] if self._took else []
        if shown.first is not None:
            right.append(button(f"try {_offer(shown.first)} by A/B", "try_it", rank=1))
        if shown.lanes:
            right.append(button("why", "why", rank=2))
        return PanelFrame(top=(cell(shown.title, "strong"),), top_right=tuple(right))

    def body(self, width: int, height: int) -> Iterator[Parts]:
        """Yield evidence, lanes, and below them more evidence, the caution and the proposals.

        The lanes keep their place, however much evidence there is.
        """
        shown = self._shown
        if shown.kind == "starting":
            yield self._first_row(width)
            for hint in self._meanwhile:
                yield ((f" {_fitting(hint, width - 2, '  ')}", "dim"),)
            return
        wide = self.framed and width >= TRIES_BESIDE and bool(shown.tries)
        rows = list(self._lanes(width - TRIES_WIDTH if wide else width))
        tries = list(self._tries(TRIES_WIDTH if wide else width))
        if not self.framed and self._line_button(width):
            tries = tries[1:]  # the title has the first one
        cautions = [shown.caution] if shown.caution else []
        room = height - 1 - len(rows) - len(cautions) - (0 if wide else len(tries))
        room = room if self.framed else max(room, 1)
        clauses = 1 if self.framed and len(shown.evidence) <= room + 1 else None
        first = self._first_row(width, clauses)
        yield first
        above = "".join(text for text, _ in first)
        left = [clause for clause in shown.evidence if clause not in above]
        below = [*((one, "text") for one in left[: max(room, 0)]), *((c, "busy") for c in cautions)]
        rows += [((f" {fmt.clip(clause, max(width - 2, 0))}", ink),) for clause, ink in below]
        yield from (
            beside(rows, tries[: height - 1], width - TRIES_WIDTH) if wide else (*rows, *tries)
        )

    def _first_row(self, width: int, clauses: int | None = None) -> Parts:
        """Return at most `clauses` of the evidence; without a frame, the title before it."""
        if not self.framed:
            return self._title(width)
        return ((f" {self._text(width - 2, clauses)}", "text"),)

    def _title(self, width: int) -> Parts:
        """Return one line: the answer, as much evidence as fits, and the button to try."""
        shown = self._shown
        button = self._line_button(width)
        room = width - 1 - (width_of(button) + 2 if button else 0)
        says_limit = shown.lanes and shown.kind not in (*INTERRUPTED, "measuring")
        title = shown.title.upper() if says_limit else shown.title
        row = [(f" {_fitting(title.split(' '), room, ' ')}", "strong")]
        text = self._text(room - cell_len(title) - 2)
        between = " " if title.endswith("…") else "; " if ": " in title else ": "
        row += [(f"{between}{text}", "text")] if text else []
        gap = width - width_of(row) - width_of(button) - 1
        return (*row, (" " * gap, ""), *button) if button else row

    def _line_button(self, width: int) -> Parts:
        """Return the button of the first proposal, if it fits beside the title.

        Its possible gain is shown, unless the first evidence fits without it alone.
        """
        key, first = key_for("try_it"), self._shown.first
        if first is None:
            return ()
        evidence = f": {self._shown.evidence[0]}" if self._shown.evidence else ""
        offer, plain = f" try {_offer(first)}", f" try {first.label} (A/B)"
        ways = ((f"{offer} (A/B)", evidence), (offer, evidence), (plain, evidence), (offer, ""))
        for label, after in (*ways, (plain, "")):
            if width >= cell_len(self._shown.title + after + key + label) + 4:
                return (key, "key"), (label, "dim")
        return ()

    def _text(self, width: int, clauses: int | None = None) -> str:
        """Return the stages of a start, or at most `clauses` of the evidence, as many as fit."""
        if self._shown.kind == "starting":
            return _fitting(self._stages, width, "  ")
        return _fitting(self._shown.evidence[:clauses], width, "; ")

    def _lanes(self, width: int) -> Iterator[Parts]:
        """Yield the lanes on one scale: a column is the same moment of the step in all."""
        shown = self._shown
        if not shown.step_ms:
            return
        step_ms = shown.step_ms
        name_width = min(max((cell_len(one.name) for one in shown.lanes), default=0), NAME_WIDTH)
        texts = [rest_text(one, step_ms) for one in shown.lanes]
        texts[0] = f"{texts[0]} of {fmt.milliseconds(step_ms)} ms" if texts[0] else ""
        texts[0] = texts[0] or f"{fmt.milliseconds(step_ms)} ms, the step"
        room = width - name_width - 4 - max(map(cell_len, texts))
        if room < LEAST_BAR:
            texts = [""] * len(texts)
            room = width - name_width - 3
        for one, text in zip(shown.lanes, texts, strict=True):
            name = fmt.clip(fmt.plain(one.name), name_width)
            row = [(f" {name}{' ' * (name_width - cell_len(name))} ", "dim")]
            for part, columns in spread(one, step_ms, max(room, 0)):
                row.append((printed(part, columns), part.ink) if part else (IDLE * columns, "idle"))
            yield (*row, (f"{EDGE}{text}", "dim"))

    def _tries(self, width: int) -> Iterator[Parts]:
        """Yield the proposals, the first one with its key."""
        tries = self._shown.tries
        wide = max((len(one.label) for one in tries), default=0)
        key = f" {key_for('try_it')} "
        room = max(width - wide - len(key) - 3, 0)
        for index, one in enumerate(tries):
            mark = key if index == 0 and one.gain is not None else " " * len(key)
            gain = f"{one.gain.label}; " if one.gain is not None else ""
            gain = gain if len(gain) <= room else ""
            why = fmt.clip(one.why, room - len(gain))
            yield (mark, "key"), (f"{one.label:<{wide}}  ", "text"), (gain, "text"), (why, "dim")

    # ── mouse ───────────────────────────────────────────────────────────────────────────

    def clicked(self, x: int, y: int) -> None:
        """Run `try_it` for a click on its button, else `why`."""
        button = () if self.framed else self._line_button(self.size.width)
        on_button = y == 0 and bool(button) and x >= self.size.width - 1 - width_of(button)
        if on_button:
            self.act("try_it")
        elif self._shown.lanes:
            self.act("why")


def _offer(one: Try) -> str:
    """Return a proposal with its possible gain, if that is known."""
    return one.label if one.gain is None else f"{one.label}: {one.gain.label}"


def start_stages(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the stages of a start: done, present with its time so far, and to come."""
    stages = OF_SCRIPT if is_script(snapshot) else STAGES
    now = stages.index(_stage(snapshot))
    began_s = snapshot.markers[-1].at_s if snapshot.markers else 0.0
    waited = f" {max(snapshot.elapsed_s - began_s, 0.0):.0f} s …"
    return tuple(
        f"{'✓' if index < now else '◌' if index == now else '·'} {name}"
        f"{waited if index == now else ''}"
        for index, name in enumerate(stages)
    )


def start_hints(snapshot: Snapshot) -> tuple[tuple[str, ...], ...]:
    """Return lines of clauses: what can be done before the first step, and requested levers."""
    if is_script(snapshot):
        script, every = fmt.plain(snapshot.workload), f"{key_for('help')} every key"
        as_it_is = f"{script} runs as it would without gpudash, until you move a lever"
        return (as_it_is,), ("levers are known from the first training step on", every)
    asked = tuple(fmt.plain(phrase({name: value})) for name, value in snapshot.requested.items())
    hints = [(f"asked for: {asked[0]}", *asked[1:])] if asked else []
    if "levers" in snapshot.can:
        early = "levers work already: the first step uses what you set now"
        does = {"screen.enter": "values", "workload": "another workload", "help": "every key"}
        keys = tuple(f"{key_for(action)} {what}" for action, what in does.items())
        hints = [(early,), keys, *hints]
    return tuple(hints)


def _stage(snapshot: Snapshot) -> str:
    """Return the present stage of a start, by the snapshot's status."""
    status = snapshot.status
    if is_script(snapshot):
        waits = snapshot.state == "starting" and "torch is imported" not in status
        return OF_SCRIPT[1] if waits else OF_SCRIPT[2]
    if snapshot.state != "starting":
        return "first step"
    return "torch" if "torch" in status else "model" if "building" in status else "worker"


def rest_text(lane: Lane, step_ms: float) -> str:
    """Return the rest of the step in a lane as text; empty below 0.5 % of the step."""
    ms = fmt.milliseconds(lane.rest_ms)
    return f"{ms} {lane.rest}" if lane.rest_ms >= 0.005 * step_ms else ""


def spread(lane: Lane, step_ms: float, width: int) -> list[tuple[Part | None, int]]:
    """Return the parts with their columns, and None with the rest; the sum is `width`.

    A part's columns lie between the rounded moments of its begin and its end.
    """
    ends, at_ms = [0], 0.0
    for part in lane.parts:
        at_ms += part.ms
        ends.append(min(round(at_ms / step_ms * width), width))
    columns = [end - begin for begin, end in pairwise(ends)]
    return [*zip(lane.parts, columns, strict=True), (None, width - ends[-1])]


def printed(part: Part, columns: int) -> str:
    """Return the part as text of `columns`, with the longest label that fits."""
    ms = fmt.milliseconds(part.ms)
    for label in (f"{part.label} {ms}", f"{part.short} {ms}", ms, part.short, ""):
        text = f"{EDGE}{fmt.plain(label)}"
        if cell_len(text) <= columns:
            return text + " " * (columns - cell_len(text))
    return ""


def _fitting(clauses: Sequence[str], width: int, between: str) -> str:
    """Return as many of the first clauses as fit uncut."""
    text = ""
    for clause in clauses:
        longer = f"{text}{between}{clause}" if text else clause
        if cell_len(longer) > width:
            break
        text = longer
    return text
