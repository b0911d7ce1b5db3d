"""The dashboard for Grafana and the alerts ask for what is exported, in PromQL that is valid."""

import json
import re
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpudash.cli.options import OF_A_SCRIPT
from gpudash.metrics import METRICS
from gpudash.sinks import exported
from gpudash.sinks.exported import BESIDE
from tests.docs.test_commands import ROOT
from tests.waiting import done

GUIDE = ROOT / "docs" / "guide"
FOLDER = GUIDE / "exporters"
NAME = re.compile(r"\b(?:gpudash|hw)_[a-z0-9_]+\b")
EXPORTED = {one.sample for one in (*map(exported.of, METRICS), *BESIDE)}
LABELS = {"hw_id", "hw_name", "hw_type", "hw_model"}


def dashboard() -> dict[str, Any]:
    return json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return group["rules"]


def expressions() -> list[str]:
    """The dashboard's, with a value in the place of each variable."""
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    targets += [one["expr"] for one in dashboard()["annotations"]["list"]]
    values = {"$__rate_interval": "1m", "$__interval": "1m", "$job": "a", "$instance": "b"}
    return [re.sub(r"\$\w+", lambda found: values[found[0]], one) for one in targets]


def test_dashboard_and_alerts_ask_for_what_is_exported_alone() -> None:
    asked = {name for text in expressions() for name in NAME.findall(text)}
    asked |= {name for one in alerts() for name in NAME.findall(one["expr"])}
    assert asked - LABELS <= EXPORTED
    assert len(asked) > 15


def test_the_page_names_what_is_exported_and_every_destination() -> None:
    page = (GUIDE / "exporters.md").read_text(encoding="utf-8")
    assert set(NAME.findall(page)) - LABELS <= EXPORTED
    for name in OF_A_SCRIPT:
        assert f"`{name}:" in page or f"--to {name}" in page, name


def test_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    for key in ("id", "title"):
        assert len({one[key] for one in panels}) == len(panels)
    boxes = [one["gridPos"] for one in panels]
    assert all(one["x"] >= 0 and one["x"] + one["w"] <= 24 for one in boxes)
    for a, b in combinations(boxes, 2):
        apart = (a["x"] + a["w"] <= b["x"], b["x"] + b["w"] <= a["x"])
        assert any((*apart, a["y"] + a["h"] <= b["y"], b["y"] + b["h"] <= a["y"]))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_the_alerts_raised_when_they_should_be(tmp_path: Path) -> None:
    checked = done("promtool", "check", "rules", FOLDER / "alerts.yml")
    assert checked.returncode == 0, checked.stderr
    tested = done("promtool", "test", "rules", FOLDER / "alerts_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    rules = [{"record": f"asked_{n}", "expr": text} for n, text in enumerate(expressions())]
    asked = tmp_path / "asked.yml"
    asked.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = done("promtool", "check", "rules", asked)
    assert checked.returncode == 0, checked.stdout + checked.stderr
