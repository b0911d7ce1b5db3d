"""The wording of results; copied text names workload, device and levers not at their default."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from gpudash import format as fmt
from gpudash.compare.lengths import PAIRS
from gpudash.errors import UsageError
from gpudash.metrics import COMPARED, METRICS
from gpudash.protocol.commands import Plan
from gpudash.protocol.records import Settings
from gpudash.protocol.session import NOT_COMPARED, ComparisonShown, Sides
from gpudash.protocol.training import Device, Lever
from gpudash.reference_levers import reference_levers
from gpudash.snapshot import Result
from workloads.levers import phrase


def change_of(shown: ComparisonShown) -> str:
    """Return what value B changes: `+16.9 % [+16.5, +17.3]`."""
    if shown.change is None:
        return fmt.ABSENT
    return fmt.change(shown.change, shown.low, shown.high)


def counted(shown: ComparisonShown) -> str:
    return (fmt.starts if shown.of_starts else fmt.pairs)(shown.pairs)


def figures(shown: ComparisonShown) -> Iterator[tuple[str, Sides, str]]:
    """Yield word, values and unit of what is known of the sides: rates, the step, then the rest."""
    known = {name: METRICS[name] for name in COMPARED if fmt.measured(shown.of(name))}
    for name, metric in known.items():
        if not metric.side:
            yield "", shown.of(name), metric.unit
    a, b = (1000 / rate if rate else None for rate in shown.of("steps_per_s"))
    if a is not None or b is not None:
        yield "step", (a, b), "ms"
    for name, metric in known.items():
        if metric.side:
            yield metric.side, shown.of(name), metric.unit


def context(shown: ComparisonShown, now: Mapping[str, str]) -> str:
    """Return the conditions of a comparison: value A, pairs, and levers that differ from now."""
    otherwise = {k: v for k, v in shown.settings.items() if now.get(k) != v}
    where = [phrase(otherwise)] if otherwise else []
    return ", ".join([f"against {shown.a}", f"{shown.pairs} pairs", *where])


def verdict_text(shown: ComparisonShown, workload: str, device: Device | None) -> str:
    sides = zip((shown.a, shown.b), shown.rates, strict=True)
    rates = ", ".join(f"{value}: {fmt.figure(rate)} {shown.unit}" for value, rate in sides)
    found = shown.verdict
    if found is None:
        so_far = f"; so far {shown.b} {change_of(shown)}" if shown.low is not None else ""
        why = shown.failure or "running"
        found = f"no verdict for {shown.lever}={shown.b}: {why}{so_far}"
    elif not shown.of_starts:  # their verdict says it
        found += f"; {shown.losses}"
    return "\n".join([found, rates, _where(workload, device, shown.settings)])


def verdict_command(shown: ComparisonShown, workload: str, plan: Plan, *, starts: int = 1) -> str:
    """Raise UsageError where the command is not known. Several starts have fewer pairs."""
    if shown.of_starts:
        raise UsageError("the command line that compares is not known here")
    words = ["gpudash", *(["tune"] if shown.doing else _asking(shown, starts))]
    levers = reference_levers(workload, shown.settings)
    if plan.command:
        return shlex.join([*words, "--", *_as_typed(plan.command)])
    if not levers:
        asked = shlex.join([*words, "--"])
        raise UsageError(f"the arguments of {workload} are not known here: {asked} COMMAND asks it")
    for name, value in changed(shown.settings, levers).items():
        words += ["--set", f"{name}={value}"]
    if plan.nproc > 1:
        words += ["--nproc", str(plan.nproc)]
    if plan.device != "auto":
        words += ["--device", plan.device]
    return shlex.join([*words[:2], workload, *words[2:]])


def _asking(shown: ComparisonShown, starts: int) -> Iterator[str]:
    yield from ("ab", "--lever", f"{shown.lever}={shown.a},{shown.b}")
    if starts > 1:
        yield from ("--starts", str(starts))
    elif shown.planned_pairs != PAIRS:
        yield from ("--pairs", str(shown.planned_pairs))
    if shown.losses != NOT_COMPARED:
        yield "--losses"


def _as_typed(command: tuple[str, ...]) -> Sequence[str]:
    """Return the command without the Python that gpudash takes for it anyway."""
    from gpudash.run.user_command import understand  # noqa: PLC0415  # after the first frame

    with suppress(UsageError):
        if understand(command[1:]).argv == command:
            return command[1:]
    return command


def result_text(result: Result, device: Device | None) -> str:
    numbers = (
        f"{fmt.significant(result.samples_per_s)} samples/s",
        f"{fmt.significant(result.steps_per_s)} steps/s",
        f"step p50 {fmt.significant(result.step_ms_p50)} ms",
        f"p95 {fmt.significant(result.step_ms_p95)} ms",
        f"{fmt.count(result.steps)} steps",
    )
    return f"{', '.join(numbers)}\n{_where(result.workload, device, result.settings)}"


def _where(workload: str, device: Device | None, settings: Settings) -> str:
    name = f"{workload} on {device.name}" if device else workload
    moved = changed(settings, reference_levers(workload, settings))
    return ", ".join([name, *filter(None, [phrase(moved)])])


def changed(settings: Settings, levers: Iterable[Lever]) -> Settings:
    """Return the settings that differ from the training's own; all, if its levers are not known."""
    known = {lever.name: lever for lever in levers}
    return {
        name: value
        for name, value in settings.items()
        if not known or (name in known and (value != known[name].default or known[name].on_cpu))
    }
