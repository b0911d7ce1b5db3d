"""Describes the findings in one line."""

from collections import Counter
from collections.abc import Iterable

from gpudash.hooks.found import Feed, Found


def found_line(found: Found) -> str:
    """Return the line, such as `AdamW, root GPT, 4 backward passes a step, no DataLoader`."""
    parts = [_optimizers(found), _roots(found), _backwards(found), _feed(found.feed)]
    if found.scaler:
        parts.insert(1, "GradScaler")
    if found.declared:
        parts.append("steps as the script declares them")
    if found.other_thread:
        parts.append("another thread trains too: its steps are not counted")
    if found.unmeasured:
        parts.append(found.unmeasured)
    return ", ".join(parts)


def _optimizers(found: Found) -> str:
    if not found.optimizers and found.declared:
        return "optimizer unknown"
    if not found.optimizers:
        return "no optimizer: each backward pass ends a step"
    return " and ".join(_counted(type(one).__name__ for one in found.optimizers))


def _roots(found: Found) -> str:
    names = [root.name for root in found.roots if root.module is not None]
    if not names:
        return "root unknown"
    return f"root{'s' if len(names) > 1 else ''} {' and '.join(_counted(names))}"


def _backwards(found: Found) -> str:
    if found.backwards is None:
        return "backward passes a step unknown"
    passes = "pass" if found.backwards == 1 else "passes"
    return f"{found.backwards} backward {passes} a step"


def _feed(feed: Feed | None) -> str:
    if feed is None:
        return "no DataLoader"
    loader = feed.loader()
    if loader is None:
        return "DataLoader"
    workers = "worker" if loader.num_workers == 1 else "workers"
    return f"DataLoader with {loader.num_workers} {workers}"


def _counted(names: Iterable[str]) -> list[str]:
    return [f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items()]
