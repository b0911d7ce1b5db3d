"""Model flops utilisation: its figure, its convention, and why there is none."""

from gpudash.format import percent, significant
from gpudash.protocol.inspections import Profiled

CONVENTION = "2 flops a multiply-add, forward and backward, recomputed again; dense peak"
"""What is counted: the products of matrices, convolutions and attention, by their shapes."""


def mfu_pct(profiled: Profiled | None) -> float | None:
    """Return model flops in percent of the measured peak; None if unknown or above the peak.

    The untraced step time is used, if it is known.
    """
    share_pct = None if profiled is None else _share_pct(profiled)
    return share_pct if share_pct is not None and share_pct <= 100 else None


def mfu_text(profiled: Profiled) -> str:
    """Return the figure with the peak that it is of; `–` with the reason where there is none."""
    share_pct, peak_tflops = _share_pct(profiled), _peak_tflops(profiled)
    if profiled.flops is None:
        return "MFU –: no product was counted"
    if not peak_tflops:
        which = profiled.precision or "a precision that is not known"
        return f"MFU –: no peak was measured for {which}"
    if share_pct is None:
        return "MFU –: the step's time is not known"
    reached = f"the {flop(peak_tflops * 1e3)}/s that {profiled.precision} reached here"
    if share_pct > 100:
        return f"MFU –: {percent(share_pct)} of {reached} cannot be"
    least = "at least " if profiled.flops.covered_pct < 99.5 else ""
    return f"MFU {least}{percent(share_pct)} of {reached}"


def flop(gflop: float) -> str:
    """Return a number of operations."""
    units = ((1e3, "TFLOP"), (1.0, "GFLOP"), (1e-3, "MFLOP"))
    size, unit = next((one for one in units if gflop >= one[0]), units[-1])
    return f"{significant(gflop / size)} {unit}"


def _peak_tflops(profiled: Profiled) -> float:
    peak = profiled.peak
    return 0.0 if peak is None else peak.matmul_tflops.get(profiled.precision, 0.0)


def _share_pct(profiled: Profiled) -> float | None:
    peak_tflops = _peak_tflops(profiled)
    step_ms = profiled.untraced_step_ms or profiled.steps_ms / max(profiled.steps, 1)
    if profiled.flops is None or peak_tflops <= 0 or step_ms <= 0:
        return None
    return 100 * profiled.flops.step_gflop / step_ms / peak_tflops
