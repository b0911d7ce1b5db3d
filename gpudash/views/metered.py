"""The energy of a sample under one setting, by readings of the GPU's energy counter. No I/O.

Readings come once a second. Of each stretch in which the setting trained, the time between its
first and its last reading counts. The counter moves on in ticks, so that each end of a stretch is
known to one tick.
"""

from math import sqrt

from gpudash.snapshot import SampleEnergy

LEAST_S = 2.0
"""No figure from less."""
TICK_S = 0.1
"""The longest period of a counter that was measured."""


class Metered:
    """One setting."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None  # moment and joules
        self._joules = self._seconds = 0.0
        self._stretches = 0
        self._is_first = True  # no time of the stretch has counted yet

    def add(self, at_s: float, energy_j: float, since_s: float) -> None:
        """Add a reading; the setting has trained since `since_s` without a break."""
        last = self._last
        if last is not None and last[0] == at_s:  # told again
            return
        self._last = at_s, energy_j
        if last is None or last[0] < since_s or energy_j < last[1]:  # or the driver was reloaded
            self._is_first = True
            return
        self._joules += energy_j - last[1]
        self._seconds += at_s - last[0]
        self._stretches += self._is_first
        self._is_first = False

    def of_sample(self, samples_per_s: float | None) -> SampleEnergy | None:
        """Return the energy of a sample at this rate; None if too little is known."""
        if not samples_per_s or self._seconds < LEAST_S or not self._joules:
            return None
        joules = self._joules / self._seconds / samples_per_s
        ends_s = TICK_S * sqrt(2 * self._stretches / 12)  # each is anywhere within its tick
        return SampleEnergy(joules=joules, within_j=1.96 * joules * ends_s / self._seconds)
