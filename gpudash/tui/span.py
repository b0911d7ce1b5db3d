"""The part of a trace that is shown: zoom and pan, in microseconds."""

import msgspec

LEAST_US = 0.05
"""Shortest part that is shown: a trace has nanoseconds."""
ZOOM = 2.0
"""Factor of a zoom step."""
PAN = 0.25
"""A pan step, as a share of the shown part."""


class Span(msgspec.Struct, frozen=True):
    """A part of a trace, which begins at 0."""

    begin_us: float
    end_us: float
    whole_us: float

    @property
    def length_us(self) -> float:
        """Length of the shown part."""
        return self.end_us - self.begin_us

    @property
    def middle_us(self) -> float:
        """The moment in the middle of the shown part."""
        return (self.begin_us + self.end_us) / 2

    def holds(self, at_us: float) -> bool:
        """Whether the moment is shown."""
        return self.begin_us <= at_us < self.end_us

    def of(self, begin_us: float, end_us: float) -> "Span":
        """Return the span of these moments, moved to lie within the trace."""
        length_us = min(max(end_us - begin_us, LEAST_US), self.whole_us)
        begin_us = min(max(begin_us, 0.0), self.whole_us - length_us)
        return Span(begin_us, begin_us + length_us, self.whole_us)

    def zoomed(self, direction: int, at_us: float) -> "Span":
        """Return a span of less (-1) or more (+1) time; `at_us` keeps its place on screen."""
        length_us = min(max(self.length_us * ZOOM**direction, LEAST_US), self.whole_us)
        begin_us = at_us - (at_us - self.begin_us) * length_us / self.length_us
        return self.of(begin_us, begin_us + length_us)

    def panned(self, by_us: float) -> "Span":
        """Return the span moved later by `by_us`, or earlier if negative."""
        return self.of(self.begin_us + by_us, self.end_us + by_us)

    def holding(self, at_us: float) -> "Span":
        """Return the span moved by as little as shows this moment, with a margin if it moved."""
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
