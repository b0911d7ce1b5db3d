"""What the processes below a training do: loader workers, another rank, or something else."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypeAlias

from gpudash.telemetry.procfs import Process, Usage, number_within

Role: TypeAlias = Literal["training", "loader", "other", "rank"]


class Roles:
    """Gives each process of a training its role. What a loader worker starts is of the loader."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._awaited: set[int] | None = None  # loader workers that were told, and not seen yet
        self._known: dict[Process, Role] = {}
        self.of_ended: Role = "other"
        """What processes are likely to have been that have ended since the call of `of` before."""

    @property
    def are_told(self) -> bool:
        return self._awaited is not None

    def tell(self, loaders: Collection[int] | None) -> None:
        """Take all loader workers that there are, by their numbers within the training's container.

        A number counts once: when its process has ended, another one may get it.
        """
        self._awaited = None if loaders is None else set(loaders)

    def of(self, found: Mapping[Process, Usage], ranks: Collection[int]) -> dict[Process, Role]:
        """Each parent comes before its children. `ranks` are all training processes."""
        before, self._known = self._known, dict(self._each(found, ranks))
        comes_or_goes = {role for _, role in before.items() ^ self._known.items()}
        self.of_ended = "loader" if "loader" in comes_or_goes else "other"
        return self._known

    def _each(
        self, found: Mapping[Process, Usage], ranks: Collection[int]
    ) -> Iterator[tuple[Process, Role]]:
        roles: dict[int, Role] = {}
        for process, usage in found.items():
            above = roles.get(usage.parent, "other")
            role = self._known.get(process, "other")  # also once its parent has ended
            if process.pid == self._pid:
                role = "training"
            elif process.pid in ranks:
                role = "rank"
            elif above in ("loader", "rank"):
                role = above
            elif self._is_new_loader(process):
                role = "loader"
            roles[process.pid] = role
            yield process, role

    def _is_new_loader(self, process: Process) -> bool:
        awaited = self._awaited
        if not awaited or (number := number_within(process.pid)) not in awaited:
            return False
        awaited.discard(number)
        return True
