"""Contents of header, status line and footer: pure functions of a snapshot."""

from collections.abc import Iterable

from gpudash import format as fmt
from gpudash.availability import Requests
from gpudash.present.axes import latest
from gpudash.present.cells import Cell, cell
from gpudash.protocol.session import Playback
from gpudash.snapshot import (
    ENDED,
    Marker,
    ShownState,
    Snapshot,
    doing_now,
    is_live,
    silence,
    unreadable,
)
from gpudash.tui.availability import availability
from gpudash.tui.keys import ENTERS, KEYS, Key, by_focus, key_for
from workloads.levers import phrase

STATE_STYLES: dict[ShownState, tuple[str, str]] = {
    "starting": ("◌", "busy"),
    "training": ("▶", "good"),
    "switching": ("◌", "busy"),
    "paused": ("‖", "busy"),
    "finished": ("■", "dim"),
    "failed": ("✗", "bad"),
    "stopped": ("■", "dim"),
}
NOTES_S = 20.0
"""How long a note is shown, in seconds."""
MOST_VALUE = 12
"""Most columns of a lever's value beside its key."""
HOST_PCT = 90.0
"""Share of a step for which a busy host is not ahead of the device."""
OWN_COST_PCT = 0.5
"""Share of a step from which the status line names gpudash's own cost."""
FREE = Requests()


def button(text: str, action: str, *, key_of: str = "", rank: int = 0) -> Cell:
    """Put the action's key, or `key_of`'s, before the text."""
    key = key_for(key_of or action)
    return Cell(parts=((key, "key"), (f" {text}", "dim")), rank=rank, action=action)


def header(snapshot: Snapshot) -> tuple[Cell, ...]:
    glyph, style = ("◌", "busy") if snapshot.doing is not None else STATE_STYLES[snapshot.state]
    steps = fmt.count(snapshot.total_steps)
    if snapshot.planned_steps is not None:
        steps += f"/{snapshot.planned_steps:,}"
    elapsed = f"{'watched ' if snapshot.joined else ''}{fmt.clock(snapshot.elapsed_s)}"
    if snapshot.planned_s is not None:
        elapsed = f"{fmt.clock(snapshot.training_s or 0.0)}/{fmt.clock(snapshot.planned_s)}"
    device = snapshot.device.name.removeprefix("NVIDIA ") if snapshot.device else fmt.ABSENT
    what = fmt.clip(fmt.plain(snapshot.workload or "gpudash"), 32)
    state = Cell(parts=((f"{glyph} {doing_now(snapshot)}", style), (f" {elapsed}", "strong")))
    return (
        Cell(parts=((what, "strong"), (" · ", "dim"), (fmt.clip(fmt.plain(device), 32), "text"))),
        *([cell(f"{len(snapshot.ranks)} ranks", "dim", rank=2)] if snapshot.ranks else ()),
        *(_playback(snapshot.playback) if snapshot.playback else (state,)),
        *_per_gpu(snapshot),
        Cell(parts=(("step ", "dim"), (f"{steps:>7}", "strong")), rank=4),
        Cell(parts=(("loss ", "dim"), (f"{fmt.loss(snapshot.loss):<6}", "strong")), rank=3),
    )


def header_right(snapshot: Snapshot) -> tuple[Cell, ...]:
    recording = snapshot.recording
    if recording is None:
        if "record" not in snapshot.can:
            return ()
        return (button("○ record", "record", rank=5),)
    path = fmt.clip(fmt.plain(recording.path.rsplit("/", 1)[-1]), 28)
    rows = f" {fmt.count(recording.rows)} rows"
    return (
        cell("● REC", "bad", action="record"),
        Cell(parts=((path, "text"), (rows, "dim")), rank=6),
    )


def _playback(playback: Playback) -> tuple[Cell, ...]:
    name = fmt.clip(fmt.plain(playback.name), 24)
    place = f"{fmt.clock(playback.position_s)} of {fmt.clock(playback.length_s)}"
    pace = f"×{playback.speed:g}" if playback.playing else "‖"
    return (
        Cell(parts=(("◀ replay ", "busy"), (name, "text"))),
        cell(place),
        cell("follows" if playback.following else f"{pace:<5}", "busy"),
        cell("read only", "dim", rank=7),
    )


def _per_gpu(snapshot: Snapshot) -> list[Cell]:
    each_step = (
        row.samples_per_s / row.steps_per_s
        for row in snapshot.ranks
        if row.samples_per_s and row.steps_per_s
    )
    batches = [round(samples) for samples in fmt.measured(each_step)]
    if not batches:
        return []
    least, most = min(batches), max(batches)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return [cell(f"{each} samples a step and rank", "dim", rank=5)]


def status(
    snapshot: Snapshot,
    next_start: dict[str, str],
    *,
    ending: bool = False,
    profile: str = "",
) -> tuple[Cell, ...]:
    """With `ending`, a script was asked to end; `profile` is the progress of a profile."""
    if ending and snapshot.state not in ENDED:
        ends = f"{fmt.plain(snapshot.workload)} is ending"
        leaves = f"; {key_for('leave')} again leaves it"
        return (Cell(parts=((ends, "busy"), (leaves, "busy"))),)
    now, compared = snapshot.status, snapshot.comparison
    said = (
        "" if profile and snapshot.doing == "profile" else now,
        # the ledger and the A/B's tab have a verdict
        "" if compared is not None and snapshot.notice == compared.verdict else snapshot.notice,
    )
    sentence = " ".join(fmt.plain(" – ".join(filter(None, said))).split())
    hint = ""
    if snapshot.state in ENDED:
        sentence = sentence.rstrip(". ")
    if snapshot.state in ENDED and "restart" in snapshot.can:
        hint = f"press {key_for('restart')} to restart"
        if next_start:
            hint += f" with {phrase(next_start)}"
        elif snapshot.state == "failed":
            hint = f"change a setting and {hint}"
        hint = f" · {hint}"
    elif snapshot.state == "starting" and snapshot.pausing:
        hint = f" · pauses before the first step; {key_for('pause')} takes it back"
    elif snapshot.state == "paused" and "pause" in snapshot.can:
        hint = f" · {key_for('pause')} resumes"
    elif snapshot.state == "training":
        last = _change(snapshot)
        since = f"{fmt.plain(last.label)} since {fmt.clock(last.at_s)}" if last else ""
        found = " ".join(fmt.plain(snapshot.found).split())
        parts = (sentence, since, *_asides(snapshot), *_notes(snapshot), found)
        sentence = " · ".join(filter(None, parts)) or "no lever changed yet"
    sentence = " · ".join(filter(None, (fmt.plain(profile), sentence)))
    style = STATE_STYLES[snapshot.state][1]
    return (Cell(parts=((sentence, style), (hint, style))),)


def _change(snapshot: Snapshot) -> Marker | None:
    """Return the marker of the newest lever change since the start, not of pauses or A/Bs."""
    turns = (one for one in reversed(snapshot.markers) if one.kind in ("change", "restart"))
    newest = next(turns, None)
    return newest if newest is not None and newest.kind == "change" else None


def _notes(snapshot: Snapshot) -> Iterable[str]:
    """Return the training's notes on the newest change, for a while; the log keeps them."""
    since_s, change = snapshot.training_s or 0.0, _change(snapshot)
    if change is not None:
        since_s = min(since_s, snapshot.elapsed_s - change.at_s)
    return map(fmt.plain, snapshot.notes) if since_s < NOTES_S else ()


def _asides(snapshot: Snapshot) -> list[str]:
    asides = silence(snapshot) + unreadable(snapshot.skipped_samples)
    own_ms, step_ms = snapshot.instruments_ms, snapshot.step_ms_p50
    host_ms = latest(snapshot.series, "host_ms")
    behind = host_ms is not None and step_ms is not None and 100 * host_ms >= HOST_PCT * step_ms
    # if the host is ahead of the device, its own cost delays no step
    if behind and own_ms and step_ms and 100 * own_ms >= OWN_COST_PCT * step_ms:
        share = 100 * own_ms / step_ms
        asides.append(
            f"measuring costs at least {fmt.significant(own_ms)} ms a step, {share:.1f} %"
        )
    return asides


def _of_ab(snapshot: Snapshot) -> dict[str, str]:
    """Return the labels of keys that follow from an A/B or a tune; what is set is not offered."""
    shown, sets, back = snapshot.comparison, "", ""
    if shown is None or shown.of_starts:
        return {"screen.enter": "", "go_back": "", "new_starts": ""}
    if not shown.is_over:
        sets = "sure: ends it" * shown.is_sure
    elif shown.doing:
        sets, back = ("sets the best", "back to the start") if shown.best else ("", "")
    elif shown.verdict is not None:
        active = snapshot.pending.get(shown.lever, snapshot.settings.get(shown.lever))
        a, b = (fmt.clip(fmt.plain(value), MOST_VALUE) for value in (shown.a, shown.b))
        slower = ", slower" * (shown.proven and (shown.change or 0.0) < 0)
        sets = f"sets {b}{slower}" * (active != shown.b)
        back = f"back to {a}" * (active != shown.a)
    again = "new starts" * shown.is_over
    return {"screen.enter": sets, "go_back": back, "new_starts": again}


def footer(
    snapshot: Snapshot,
    keys: Iterable[Key] = KEYS,
    requests: Requests = FREE,
    *,
    focus: str = "",
    roomy: bool = True,
) -> tuple[Cell, ...]:
    """Put the focused panel's keys first; keys of what is not possible are grey."""
    recording, enters = snapshot.recording is not None, ENTERS.get(focus, ("", ""))
    now = {
        "screen.play": "hold" if snapshot.playback and snapshot.playback.playing else "play",
        "pause": "resume" if requests.pausing else "pause",
        "record": "end rec" if recording else "record",
        "compare": "end it" if requests.comparing else "A/B",
        "screen.live": "live" if is_live(snapshot) else "newest",
        "screen.enter": enters[1],
        **(_of_ab(snapshot) if focus == "ab" else {}),
    }
    here = [key for key in keys if key.elsewhere or focus in key.panels]
    shown = [key for key in by_focus(here, focus) if now.get(key.action, key.label)]
    refused = availability(snapshot, requests, [enters[0], *(key.action for key in shown)])
    ended = snapshot.state in ENDED
    urgent = {"restart"} if ended else {"compare"} if requests.comparing else set()
    urgent |= {"undo"} - refused.keys()

    def of(key: Key) -> Cell:
        why = refused.get(enters[0] if key.action == "screen.enter" else key.action)
        rank = 0 if key.action in urgent else 1 if focus in key.panels else key.rank
        return Cell(
            parts=(
                (key.shown, "key" if why is None else "dim"),
                (f" {now.get(key.action, key.label)}", "dim"),
            ),
            rank=rank if why is None or why.stays else 9,
            action=key.action,
        )

    return tuple(of(key) for key in shown if not (roomy and key.action == "screen.view"))
