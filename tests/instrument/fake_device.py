"""A device for the clock, without torch."""

from dataclasses import dataclass, field


@dataclass
class Device:
    """A fake device: a list of timestamps, and the times at which it reaches them."""

    host_s: float = 100.0
    pace: float = 1.0  # of its clock, against the host's
    passed_until: int = 10**9
    times_ms: list[float] = field(default_factory=list)
    next_ms: float = 0.0
    free: set[int] = field(default_factory=set)
    recorded: int = 0

    def record(self) -> int:
        self.recorded += 1
        self.times_ms.append(self.next_ms)
        return len(self.times_ms) - 1

    def passed(self, timestamp: int, /) -> bool:
        return timestamp < self.passed_until

    def between_ms(self, earlier: int, later: int, /) -> float:
        assert not {earlier, later} & self.free, "a released timestamp was read"
        return self.times_ms[later] - self.times_ms[earlier]

    def tie(self) -> tuple[int, float]:
        self.times_ms.append(0.0)
        return 0, self.host_s

    def release(self, *timestamps: int) -> None:
        assert len({*timestamps} - self.free) == len(timestamps), "released twice"
        self.free.update(timestamps)

    def cpu_s(self) -> float | None:
        return None

    def now(self) -> float:
        return self.host_s

    def idle(self) -> None:
        """Reach the next timestamp at once, unless the device is busy until later."""
        self.next_ms = max(self.next_ms, (self.host_s - 100) * 1e3 * self.pace)
