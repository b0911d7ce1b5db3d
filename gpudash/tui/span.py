"""Which stretch of a trace is shown: zoom and pan, in microseconds."""

import msgspec

LEAST_US = 0.05
"""Less is never shown: a trace has nanoseconds."""
ZOOM = 2.0
"""A step of zooming, in or out."""
PAN = 0.25
"""A step of panning, of what is shown."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of the whole, which begins at 0."""

    begin_us: float
    end_us: float
    whole_us: float

    @property
    def length_us(self) -> float:
        """How much is shown."""
        return self.end_us - self.begin_us

    @property
    def middle_us(self) -> float:
        """The moment in the middle of what is shown."""
        return (self.begin_us + self.end_us) / 2

    def holds(self, at_us: float) -> bool:
        """Whether the moment is shown."""
        return self.begin_us <= at_us < self.end_us

    def of(self, begin_us: float, end_us: float) -> "Span":
        """Show this stretch, moved into the whole where it is beyond."""
        length_us = min(max(end_us - begin_us, LEAST_US), self.whole_us)
        begin_us = min(max(begin_us, 0.0), self.whole_us - length_us)
        return Span(begin_us, begin_us + length_us, self.whole_us)

    def all(self) -> "Span":
        """Show the whole."""
        return Span(0.0, self.whole_us, self.whole_us)

    def zoomed(self, direction: int, at_us: float) -> "Span":
        """Show less (-1) or more (+1); the moment stays where it stands."""
        length_us = min(max(self.length_us * ZOOM**direction, LEAST_US), self.whole_us)
        begin_us = at_us - (at_us - self.begin_us) * length_us / self.length_us
        return self.of(begin_us, begin_us + length_us)

    def panned(self, by_us: float) -> "Span":
        """Show what comes so much later; earlier where it is negative."""
        return self.of(self.begin_us + by_us, self.end_us + by_us)

    def holding(self, at_us: float) -> "Span":
        """Move as little as brings this moment into sight, with a margin if it was out of it."""
        if self.holds(at_us):
            return self
        margin_us = PAN * self.length_us
        begin_us = (
            at_us - margin_us if at_us < self.begin_us else at_us + margin_us - self.length_us
        )
        return self.of(begin_us, begin_us + self.length_us)


def span_of(whole_us: float) -> Span:
    """Return the span of a whole trace."""
    return Span(0.0, max(whole_us, LEAST_US), max(whole_us, LEAST_US))
