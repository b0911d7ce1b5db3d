"""The answer: what limits a training, with its evidence and what to try."""

from typing import Literal, TypeAlias

from .records import Record
from .session import Slope


class Part(Record, frozen=True, array_like=True, tag=False):
    """A stretch of a lane."""

    label: str
    short: str
    """The label where there is little room."""
    ms: float
    ink: str
    """A colour that text can be printed on, such as `fill-3`."""


class Lane(Record, frozen=True, array_like=True, tag=False):
    """The use of a step by one stream, or by the host: parts and rest add up to the step."""

    name: str
    parts: tuple[Part, ...]
    rest: str
    """The label of the step's rest, such as `idle`."""
    rest_ms: float


GainHow: TypeAlias = Literal["", "rehearsed", "measured"]
"""What found a gain: the model, a rehearsal, or an A/B."""


WIDE = 2.0
"""A gain has words instead of a figure where a step may take so many times as long as at best."""
LEAST_PCT = 5.0
"""A smaller gain is inside the model's error."""


class Gain(Record, frozen=True, array_like=True, tag=False):
    """A gain in throughput, in percent of the present."""

    low_pct: float | None
    """None if only an upper bound is known."""
    high_pct: float
    source: str = ""
    """The measurement behind it, in a line; empty if other clauses of the answer state it."""
    how: GainHow = ""

    @property
    def measured(self) -> bool:
        """Whether an A/B found it."""
        return self.how == "measured"

    @property
    def expected_pct(self) -> float:
        """The middle of its range."""
        return (max(self.low_pct or 0.0, -100.0) + self.high_pct) / 2

    @property
    def is_wide(self) -> bool:
        """Whether its two ends are too far apart to be a promise."""
        return 100 + self.high_pct > WIDE * (100 + (self.low_pct or 0.0))

    @property
    def label(self) -> str:
        """Return its figures, or words where they are too far apart."""
        if not self.is_wide:
            return self.figures
        is_sure = (self.low_pct or 0.0) >= LEAST_PCT
        return f"at least {self.low_pct:+,.0f} %" if is_sure else "perhaps much"

    @property
    def figures(self) -> str:
        """Return `+80 to +150 %`, or `up to +17 %`."""
        high = f"{self.high_pct:+z,.0f} %"
        if self.low_pct is None:
            return f"up to {high}"
        low = f"{self.low_pct:+z,.0f}"
        return f"about {high}" if f"{low} %" == high else f"{low} to {high}"


class Try(Record, frozen=True, array_like=True, tag=False):
    """A change to try in an A/B, why it might help, and how much it can gain."""

    lever: str
    value: str
    why: str
    before: str = ""
    """The present value."""
    gain: Gain | None = None
    """None if no measurement supports a range."""
    takes_s: int | None = None
    """Seconds that an A/B of it takes about."""

    @property
    def change(self) -> tuple[str, str]:
        """The lever and its new value."""
        return self.lever, self.value

    @property
    def label(self) -> str:
        """Return lever and value, as `precision=bf16`."""
        return f"{self.lever}={self.value}"

    @property
    def move(self) -> str:
        """Return `num_workers 2 → 6`."""
        return f"{self.lever} {self.before} → {self.value}"

    @property
    def promise(self) -> str:
        """Return change and gain, as `num_workers 2 → 6: +80 to +150 %`."""
        return f"{self.move}: {self.gain.label}" if self.gain is not None else self.move


class Without(Record, frozen=True, array_like=True, tag=False):
    """How long a step would take if one of its parts took no time."""

    part: str
    """Its name in the model of a step, such as `data` or `your code`."""
    low_ms: float
    high_ms: float
    took_ms: float | None = None
    """What it takes, as far as it is measured."""


class Answer(Record, frozen=True, kw_only=True, tag=False):
    """What limits the training, and what to try; all of it was measured at one moment."""

    limit: str
    """The limit's word, such as `data`; `none` and `unknown` are words, too."""
    title: str
    """The limit for the user, such as `input-bound`."""
    owner: str = ""
    """What has the time: the part of the step, such as `your code`, or the limit outside of it.
    Empty if that is unclear."""
    line: str = ""
    """Where the script spends that time, as `file:line`; empty if no line of its own is known."""
    evidence: tuple[str, ...] = ()
    """Clauses, the most important first."""
    why: tuple[str, ...] = ()
    """Lines: a step without each part, the causes with their values, and a profile's figures."""
    parts: tuple[Without, ...] = ()
    """The parts that make the step longer."""
    slopes: tuple[Slope, ...] = ()
    """What slowing the parts has shown; empty until it was tried with the present settings."""
    is_proven: bool = False
    """Whether slowing has proven the limit."""
    step_ms: float | None = None
    counts: dict[str, float] = {}
    """What a step has so often: by metrics, and launches, waits and collectives by a profile."""
    lanes: tuple[Lane, ...] = ()
    """The step that the evidence is about."""
    tries: tuple[Try, ...] = ()
    """Proposed changes, best first."""
    minor: tuple[str, ...] = ()
    """Levers whose gain is inside the model's error."""
    caution: str = ""
    """Why an A/B of them is uncertain now, and what to do; empty if it is not."""


class AnswerShown(Record, frozen=True, kw_only=True):
    """The answer has changed: a replay shows it as it was shown."""

    at_s: float
    answer: Answer | None
    """None until enough steps are measured."""
