"""Make the README's first picture from a verdict, on a light and on a dark page.

    gpudash ab --json --lever num_workers=2,16 --pairs 8 remote_samples.py > verdict.json
    python docs/make_banner.py verdict.json docs/pictures/verdict

Writes `verdict-light.svg` and `verdict-dark.svg`. The device is that of the verdict.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gpudash.present.card import banner, card_of
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Device
from gpudash.snapshot import Snapshot

DARK = {
    "#1c2128": "#e6edf3",
    "#5a6472": "#9aa5b1",
    "#dfe3e8": "#3a424d",
    "#ffffff": "#0d1117",
    "#1f6fd0": "#4b9cf5",
}
"""Colours on a dark page by those of the card."""


def verdict(found: dict[str, Any]) -> ComparisonShown:
    """Return what `gpudash ab --json` has printed as the dashboard shows it."""
    check = found["check"]
    same = {name: found[name] for name in ("lever", "a", "b", "pairs", "change", "low", "high")}
    return ComparisonShown(
        **same,
        planned_pairs=found["pairs"],
        history=(),
        sides={name: tuple(both) for name, both in found["sides"].items()},
        core_wait_pct=found["core_wait_pct"],
        check_passed=check and check["low"] <= 0 <= check["high"],
        verdict=found["verdict"],
        failure=None,
    )


def main() -> None:
    """Draw one verdict for both kinds of pages."""
    source, target = sys.argv[1:]
    found = json.loads(Path(source).read_text(encoding="utf-8"))
    where = Snapshot(
        workload=found["workload"],
        settings=found["settings"],
        device=Device(kind="cuda", name=found["device"]),
    )
    card = card_of(verdict(found), where, "")
    assert card is not None
    light = banner(card, f"no edit to {found['workload']}")
    dark = light
    for one, other in DARK.items():
        dark = dark.replace(one, other)
    for name, text in (("light", light), ("dark", dark)):
        Path(f"{target}-{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
