"""What the keys do to the run: checks a request, passes it to the engine, words the answer.

No widget in here. A request that cannot be is answered by a LeverError or RecordingError,
whose one line the app shows as a notice.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from gpudash.records import Plan, Settings
from gpudash.snapshot import Snapshot
from gpudash.ui.asked import Asked
from gpudash.ui.bars import DEAD
from gpudash.ui.engine import Engine
from gpudash.ui.widgets.levers import LeverRow
from workloads import CATALOGUE, find_workload
from workloads.levers import Lever, LeverError, find, resolve


def levers_of(workload: str) -> tuple[Lever, ...]:
    """Return the levers of a workload of the catalogue; none for any other."""
    entry = CATALOGUE.get(workload)
    return entry.levers if entry else ()


class Control:
    """The engine, the newest snapshot, and what was asked for since."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.snapshot = Snapshot(workload=engine.plan.workload)
        self._asked = Asked()

    def take(self, snapshot: Snapshot) -> None:
        """Make this the newest snapshot."""
        self.snapshot = snapshot
        if not self.dead:
            self._asked.reconcile(snapshot)

    @property
    def dead(self) -> bool:
        """No worker lives: levers set up the next start."""
        return self.snapshot.state in DEAD

    # ── levers ──────────────────────────────────────────────────────────────────────────

    @property
    def workload(self) -> str:
        """The workload on screen."""
        return self.snapshot.workload or self.engine.plan.workload

    @property
    def levers(self) -> tuple[Lever, ...]:
        """The levers of that workload."""
        return levers_of(self.workload)

    @property
    def in_force(self) -> Settings:
        """Every lever's value in force; before anything ran, the one planned."""
        planned = self.engine.plan.settings
        try:
            planned = resolve(self.levers, planned)
        except LeverError:  # the engine will say so when it starts
            planned = dict(planned)
        return {**planned, **self.snapshot.settings}

    @property
    def wanted(self) -> Settings:
        """The values in force, with everything asked for on top."""
        return {**self.in_force, **self.snapshot.pending, **self._asked.settings}

    @property
    def next_start(self) -> Settings:
        """What a restart would set differently, while no worker lives."""
        in_force = self.in_force
        changed = {**self.snapshot.pending, **self._asked.settings}
        return {k: v for k, v in changed.items() if self.dead and v != in_force.get(k)}

    def rows(self) -> tuple[LeverRow, ...]:
        """Return the levers as the panel shows them."""
        in_force, wanted = self.in_force, self.wanted
        return tuple(
            LeverRow(
                lever=lever,
                value=in_force.get(lever.name, lever.default_text),
                pending=wanted[lever.name]
                if wanted.get(lever.name) != in_force.get(lever.name)
                else None,
            )
            for lever in self.levers
        )

    def value(self, lever: Lever) -> str:
        """Return the value last asked for, or the one in force."""
        return self.wanted.get(lever.name, lever.default_text)

    def change(self, lever: Lever, text: str) -> None:
        """Ask for a value. Raises LeverError, listing the valid ones."""
        value = lever.canonical(text)
        if value == self.value(lever):
            return
        self._asked.ask(lever.name, value)
        if not self.dead:
            self.engine.change({lever.name: value})

    def step(self, lever: Lever, direction: int) -> None:
        """Ask for the neighbouring value. Raises LeverError."""
        self.change(lever, lever.step(lever.canonical(self.value(lever)), direction))

    def lever(self, name: str) -> Lever:
        """Return the lever of this name. Raises LeverError where the workload has none."""
        return find(self.levers, name)

    # ── the run ─────────────────────────────────────────────────────────────────────────

    def pause_or_resume(self) -> str | None:
        """Pause or go on; return a notice where neither is possible."""
        if self.dead:
            return "nothing is running; press R to restart"
        if self.snapshot.state == "paused":
            self.engine.resume()
        else:
            self.engine.pause()
        return None

    def restart(self) -> None:
        """Start the same plan again with the levers as they are shown."""
        plan = self.engine.plan
        self._start(plan, self.workload, self.wanted)

    def start_workload(self, name: str) -> None:
        """Start another workload with its defaults. Raises LeverError for an unknown one."""
        find_workload(name)
        self._start(self.engine.plan, name, {})

    def _start(self, plan: Plan, workload: str, settings: Mapping[str, str]) -> None:
        self._asked.clear()
        self.engine.restart(
            Plan(
                workload=workload,
                settings=dict(settings),
                device=plan.device,
                steps=plan.steps,
                duration_s=plan.duration_s,
            )
        )

    # ── recording ───────────────────────────────────────────────────────────────────────

    def record(self, text: str, *, force: bool = False) -> None:
        """Record to the file named by `text`. Raises RecordingError."""
        self.engine.record(Path(text).expanduser(), force=force)

    def file_name(self, now: datetime) -> str:
        """Return the name proposed for a recording."""
        return f"gpudash-{self.workload}-{now:%Y%m%d-%H%M%S}.csv"
