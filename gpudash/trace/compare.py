"""Compare two profiles of a training: what changed in a step."""

import msgspec

from gpudash.trace.summary import CAUSES, KernelUse, Summary


class TotalChange(msgspec.Struct, frozen=True):
    """One value before and after; None if it was not measured."""

    what: str
    unit: str
    before: float | None
    after: float | None


class KernelChange(msgspec.Struct, frozen=True):
    """One kernel by name; None if it did not run."""

    name: str
    before: KernelUse | None
    after: KernelUse | None

    @property
    def change_ms(self) -> float:
        """Change in device time of a step."""
        return (self.after.ms if self.after else 0.0) - (self.before.ms if self.before else 0.0)


class ProfileComparison(msgspec.Struct, frozen=True):
    """What changed from one profile to another."""

    totals: tuple[TotalChange, ...]
    kernels: tuple[KernelChange, ...]
    """The largest change first, without unchanged kernels."""


def compare(before: Summary, after: Summary) -> ProfileComparison:
    """Return what changed from one summary to another."""
    olds, news = ({one.name: one for one in summary.kernels} for summary in (before, after))
    changes = [
        KernelChange(name, olds.get(name), news.get(name)) for name in dict.fromkeys([*olds, *news])
    ]
    changed = [one for one in changes if one.change_ms]
    totals = zip(_totals(before), _totals(after), strict=True)
    return ProfileComparison(
        totals=tuple(TotalChange(*old, new) for old, (*_, new) in totals),
        kernels=tuple(sorted(changed, key=lambda one: -abs(one.change_ms))),
    )


def _totals(summary: Summary) -> list[tuple[str, str, float | None]]:
    on_device = summary.on_device
    return [
        ("step", "ms", summary.step_ms),
        ("waits for the next batch", "ms", summary.loader_ms),
        ("device busy", "ms", summary.busy_ms),
        *((f"device idle: {cause}", "ms", summary.idle_ms.get(cause)) for cause in CAUSES),
        ("two streams at once", "ms", summary.overlap_ms),
        ("kernels", "", sum(one.count for one in summary.kernels) if on_device else None),
        ("launch calls", "", summary.launches),
        ("launch calls", "ms", summary.launch_ms),
        ("copies", "ms", sum(one.ms for one in summary.copies) if on_device else None),
        ("host waits for the device", "ms", summary.blocked_ms),
        ("communication", "ms", summary.communication_ms),
        ("communication, exposed", "ms", summary.exposed_ms),
        ("kernel time in tensor cores", "%", summary.tensor_core_pct),
        ("model flops of measured peak", "%", summary.mfu_pct),
    ]
