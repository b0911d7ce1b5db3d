"""Find how long the thread that trains runs other code than torch's: its gaps between operators.

In a backward pass that waits for autograd's own thread, the operators are there.
"""

import numpy as np
from numpy.typing import NDArray

from gpudash.trace.model import ON_DEVICE, Trace
from gpudash.trace.names import BACKWARD, STEP
from gpudash.trace.nesting import innermost
from gpudash.trace.phases import COMPILED, LOADER, OPTIMIZER
from gpudash.trace.spans import overlap, union

LAUNCHING_US = 200.0
"""Between two operators Python takes less for what is around them; what takes longer is other code.
So is an operator that takes longer and launches nothing, where others do: it computes here."""
KNOWN = (LOADER, OPTIMIZER, *COMPILED)
"""Annotations of what is torch's own between operators."""


def own_code_us(trace: Trace) -> float | None:
    """None without annotated steps: then the thread is not known."""
    events = trace.events
    begin_us, end_us = events.begin_us, events.end_us
    steps = events.are("annotation") & trace.named(STEP.fullmatch)
    if not steps.any():
        return None
    trains = np.isin(events.lane, events.lane[steps | trace.named(BACKWARD.match)])
    known = trains & events.are("annotation") & trace.named(lambda name: name.startswith(KNOWN))
    calls = known | (trains & events.are("operator", "runtime", "sync"))
    free = union(begin_us[calls], end_us[calls]).between(begin_us[steps][0], end_us[steps][-1])
    is_long = free.end_us - free.begin_us >= LAUNCHING_US
    computes = trains & _computes(trace, calls & events.are("runtime", "sync"))
    computes[computes] = innermost(events, known, computes) < 0
    code = union(
        np.concatenate([free.begin_us[is_long], begin_us[computes]]),
        np.concatenate([free.end_us[is_long], end_us[computes]]),
    )
    return overlap([code, union(begin_us[steps], end_us[steps])]).total_us


def _computes(trace: Trace, calls: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the long operators of a training on a GPU that call nothing there."""
    events = trace.events
    calls_us = events.begin_us[calls]
    found = events.are("operator") & (events.duration_us >= LAUNCHING_US)
    found &= np.searchsorted(calls_us, events.begin_us) == np.searchsorted(calls_us, events.end_us)
    return found & events.are(*ON_DEVICE).any()
