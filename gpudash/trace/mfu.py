"""Model flops utilisation: its figure, its convention, and why there is none."""

from gpudash.format import percent, plain, significant
from gpudash.protocol.inspections import Flops, Profiled

CONVENTION = "2 flops a multiply-add, forward and backward, recomputed again; dense peak"
"""What is counted: the products of matrices, convolutions and attention, by their shapes."""


def mfu_pct(profiled: Profiled | None) -> float | None:
    """None if unknown or above the peak. The untraced step time is used, if it is known."""
    share_pct = None if profiled is None else _share_pct(profiled)
    return share_pct if share_pct is not None and share_pct <= 100 else None


def mfu_text(profiled: Profiled) -> str:
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
    least = "at least " * _is_least(profiled.flops)
    return f"MFU {least}{percent(share_pct)} of {reached}"


def mfu_by_phase(profiled: Profiled) -> str:
    """Empty unless the untraced step's time is known: a trace has other phases."""
    peak_tflops = _peak_tflops(profiled)
    if profiled.flops is None or not peak_tflops:
        return ""
    said = list[str]()
    for phase, gflop in profiled.flops.phases_gflop.items():
        ms = profiled.untraced_phases_ms.get(phase, 0.0)
        if ms <= 0:
            continue
        share_pct = 100 * gflop / ms / peak_tflops
        share = percent(share_pct)
        shown = f"– ({share} cannot be)" if share_pct > 100 else share
        said.append(f"{plain(phase).replace('_', ' ')} {shown}")
    least = ", at least" * _is_least(profiled.flops)
    return f"MFU by phase{least}: {', '.join(said)}" if said else ""


def flop(gflop: float) -> str:
    units = ((1e3, "TFLOP"), (1.0, "GFLOP"), (1e-3, "MFLOP"))
    size, unit = next((one for one in units if gflop >= one[0]), units[-1])
    return f"{significant(gflop / size)} {unit}"


def _is_least(flops: Flops) -> bool:
    return flops.covered_pct < 99.5


def _peak_tflops(profiled: Profiled) -> float:
    peak = profiled.peak
    return 0.0 if peak is None else peak.matmul_tflops.get(profiled.precision, 0.0)


def _share_pct(profiled: Profiled) -> float | None:
    peak_tflops = _peak_tflops(profiled)
    step_ms = profiled.untraced_step_ms or profiled.steps_ms / max(profiled.steps, 1)
    if profiled.flops is None or peak_tflops <= 0 or step_ms <= 0:
        return None
    return 100 * profiled.flops.step_gflop / step_ms / peak_tflops
