"""What stands in header, status line, footer and tabs: pure functions from a snapshot."""

import msgspec

from gpudash import format as fmt
from gpudash.protocol import Playback
from gpudash.snapshot import ENDED, Snapshot, State, silence, unreadable
from gpudash.tui.cells import Cell
from gpudash.tui.keys import Key, keys_of
from workloads.levers import phrase

STATE_STYLES: dict[State, tuple[str, str]] = {
    "starting": ("◌", "busy"),
    "training": ("▶", "good"),
    "switching": ("◌", "busy"),
    "paused": ("‖", "busy"),
    "finished": ("■", "dim"),
    "failed": ("✗", "bad"),
    "stopped": ("■", "dim"),
}
"""No worker lives: levers then set up the next start."""
VIEWS = {"results": "results", "levers": "levers", "log": "log"}
"""Panes that share one place on a small terminal → their titles."""


def header(snapshot: Snapshot) -> tuple[Cell, ...]:
    """Return workload, device, state, progress and recording; numbers in fixed widths."""
    glyph, style = STATE_STYLES[snapshot.state]
    steps = fmt.count(snapshot.total_steps)
    if snapshot.planned_steps is not None:
        steps += f"/{snapshot.planned_steps:,}"
    elapsed = fmt.clock(snapshot.elapsed_s)
    if snapshot.planned_s is not None:
        elapsed = f"{fmt.clock(snapshot.training_s or 0.0)}/{fmt.clock(snapshot.planned_s)}"
    device = snapshot.device.name if snapshot.device else "–"
    cells = [
        Cell(parts=((snapshot.workload or "gpudash", "strong"),), rank=1),
        Cell(parts=((fmt.clip(fmt.plain(device), 32), "text"),), rank=6),
        Cell(parts=((f"{glyph} {snapshot.state:<9}", style),), rank=0),
        Cell(parts=(("step ", "dim"), (f"{steps:>7}", "text")), rank=4),
        _quantity(snapshot.steps_per_s, "steps/s", rank=2),
        _quantity(snapshot.samples_per_s, "samples/s", rank=5),
        Cell(parts=(("loss ", "dim"), (f"{_loss(snapshot.loss):<6}", "text")), rank=3),
        Cell(parts=((elapsed, "text"),), rank=4),
    ]
    if snapshot.playback:
        cells[2] = msgspec.structs.replace(cells[2], rank=5)
        return (cells[0], *_playback(snapshot.playback), *cells[1:-1])
    if snapshot.recording:
        rows = f"{fmt.count(snapshot.recording.rows)} rows"
        path = fmt.clip(fmt.plain(snapshot.recording.path.rsplit("/", 1)[-1]), 28)
        cells.insert(3, Cell(parts=(("● REC", "bad"),), rank=0, action="record"))
        cells.append(Cell(parts=((path, "text"), (f" {rows}", "dim")), rank=7))
    return tuple(cells)


def _playback(playback: Playback) -> list[Cell]:
    """Return what is replayed, how far it is and how fast."""
    name = fmt.clip(fmt.plain(playback.name), 24)
    place = f"{fmt.clock(playback.position_s)} of {fmt.clock(playback.length_s)}"
    pace = f"×{playback.speed:g}" if playback.playing else "‖"
    return [
        Cell(parts=(("◀ replay ", "busy"), (name, "text")), rank=0),
        Cell(parts=((place, "text"),), rank=0),
        Cell(parts=(("follows" if playback.following else f"{pace:<5}", "busy"),), rank=0),
        Cell(parts=(("read only", "dim"),), rank=7),
    ]


def _quantity(value: float | None, unit: str, *, rank: int) -> Cell:
    return Cell(parts=((f"{fmt.significant(value):>6}", "strong"), (f" {unit}", "dim")), rank=rank)


def _loss(loss: float | None) -> str:
    return f"{loss:.4g}" if loss is not None and fmt.is_measured(loss) else _odd_loss(loss)


def _odd_loss(loss: float | None) -> str:
    """Return nan and infinity as they are: they are a finding, not a missing value."""
    return fmt.ABSENT if loss is None else str(loss)


def status(snapshot: Snapshot, next_start: dict[str, str]) -> tuple[Cell, ...]:
    """Return the sentence of the status line, and what a restart would set."""
    sentence, hint = " ".join(fmt.plain(snapshot.status).split()), ""
    if snapshot.state in ENDED:
        sentence = sentence.rstrip(". ")
    if snapshot.state in ENDED and "restart" in snapshot.can:
        hint = "press R to restart"
        if next_start:
            hint += f" with {phrase(next_start)}"
        elif snapshot.state == "failed":
            hint = f"change a setting and {hint}"
        hint = f" · {hint}"
    elif snapshot.state == "training":
        sentence = " · ".join((sentence, *_asides(snapshot), *map(fmt.plain, snapshot.notes)))
    style = STATE_STYLES[snapshot.state][1]
    return (Cell(parts=((sentence, style), (hint, style))),)


def _asides(snapshot: Snapshot) -> list[str]:
    """Return what gpudash itself costs, and what it cannot explain or had to leave out."""
    asides = silence(snapshot) + unreadable(snapshot.skipped_samples)
    host = snapshot.host
    own_cpu_pct = None if host is None else host.number("own_cpu_pct")
    if host is not None and own_cpu_pct is not None and snapshot.instruments_ms is not None:
        asides.append(
            f"gpudash takes {fmt.percent(own_cpu_pct)} of a core, "
            f"{fmt.memory(host.number('own_rss_mib'))}, "
            f"{1000 * snapshot.instruments_ms:.0f} µs a step"
        )
    if snapshot.unattributed_pct is not None:
        asides.append(f"{snapshot.unattributed_pct:.1f} % of the time unattributed")
    return asides


def footer(snapshot: Snapshot, *, small: bool, comparing: bool = False) -> tuple[Cell, ...]:
    """Return the keys, each a button, worded for what they would do now; grey for nothing."""
    state, recording = snapshot.state, snapshot.recording is not None
    now = {
        "play": "hold" if snapshot.playback and snapshot.playback.playing else "play",
        "pause": "resume" if state == "paused" else "pause",
        "record": "end rec" if recording else "record",
        "compare": "end A/B" if comparing else "A/B",
    }
    urgent = {"restart"} if state in ENDED else {"compare"} if comparing else set()
    return tuple(
        Cell(
            parts=(
                (key.shown, "dim" if key.why_not(snapshot) else "key"),
                (f" {now.get(key.action, key.label)}", "dim"),
            ),
            rank=_rank(key, snapshot, urgent),
            action=key.action,
        )
        for key in keys_of(snapshot)
        if key.label and (small or key.action != "view")
    )


def _rank(key: Key, snapshot: Snapshot, urgent: set[str]) -> int:
    if key.why_not(snapshot):
        return 9
    return 0 if key.action in urgent else key.rank


def tabs(chosen: str) -> tuple[Cell, ...]:
    """Return the titles of the panes that share one place, the chosen one marked."""
    return tuple(
        Cell(
            parts=((f"▸ {title}" if view == chosen else f"  {title}", _tab_style(view, chosen)),),
            action=f"view('{view}')",
        )
        for view, title in VIEWS.items()
    )


def _tab_style(view: str, chosen: str) -> str:
    return "strong" if view == chosen else "dim"
