"""Several training processes side by side: a row for each rank."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from gpudash import format as fmt
from gpudash.protocol import Phase
from gpudash.snapshot import RankRow
from gpudash.tui.cells import Parts

GAP = 2


def rank_rows(
    ranks: Sequence[RankRow],
    phases: Iterable[Phase],
    shown: Iterable[int],
    width: int,
    *,
    cursor: int | None = None,
) -> Iterator[Parts]:
    """Yield the head and the rows `shown`, with a `>` before the one under the cursor."""
    columns = _fitting(_columns(phases), ranks, width - 2)
    yield ((f" {''.join(f'{title:>{wide}}' for title, (_, wide) in columns.items())}", "head"),)
    for index in shown:
        cells = "".join(f"{of(ranks[index]):>{wide}}" for of, wide in columns.values())
        mark, ink = (">", "cursor") if index == cursor else (" ", "text")
        yield ((f"{mark}{cells}", ink),)


def _columns(phases: Iterable[Phase]) -> dict[str, Callable[[RankRow], str]]:
    """Return the columns in their order, each with the text of a row in it."""
    return {
        "rank": lambda row: str(row.rank),
        "pid": lambda row: str(row.pid or fmt.ABSENT),
        "state": _state,
        "steps": lambda row: fmt.count(row.steps),
        "steps/s": lambda row: fmt.significant(row.steps_per_s),
        "p50 ms": lambda row: fmt.milliseconds(row.step_ms_p50),
        "data ms": lambda row: fmt.milliseconds(row.data_ms),
        **{f"{fmt.plain(one.label)} ms": _phase(one.name) for one in phases},
        "loss": lambda row: fmt.ABSENT if row.loss is None else f"{row.loss:.4g}",
    }


def _state(row: RankRow) -> str:
    return f"{row.state}, restart {row.restarts}" if row.restarts else row.state


def _phase(name: str) -> Callable[[RankRow], str]:
    return lambda row: fmt.milliseconds(row.phases_ms.get(name))


def _fitting(
    columns: dict[str, Callable[[RankRow], str]], ranks: Sequence[RankRow], width: int
) -> dict[str, tuple[Callable[[RankRow], str], int]]:
    """Return the columns that fit, with their widths; pid and phases are the first to go."""
    wide = {
        title: (of, GAP + max(len(title), *(len(of(row)) for row in ranks)))
        for title, of in columns.items()
    }
    kept = ("rank", "steps/s", "p50 ms", "state", "steps", "loss", "data ms")
    for title in (
        "pid",
        *reversed([one for one in columns if one not in ("pid", *kept)]),
        *kept[::-1],
    ):
        if sum(columns_wide for _, columns_wide in wide.values()) <= width:
            break
        del wide[title]
    return wide
