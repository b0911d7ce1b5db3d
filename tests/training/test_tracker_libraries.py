"""The trackers' own libraries take what is measured; each test needs one of them installed."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from gpudash.training.trackers import Trackers
from tests.training.test_trackers import figures, logged
from tests.waiting import until

RATE = "gpudash/step/steps_per_s"


def test_wandb_writes_figures_into_the_scripts_rows(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, project="p")
    run.log({"loss": 3.0})
    before = run.step
    trackers = Trackers(pytest.fail)
    trackers.take(figures("wandb"))
    logged(trackers)
    assert run.step == before
    run.log({"loss": 2.0})
    run.finish()
    (file,) = tmp_path.rglob("*.wandb")
    until(lambda: {RATE.encode() in file.read_bytes(), b"gpudash/*" in file.read_bytes()} == {True})


def test_mlflow_has_figures_in_its_store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path / 'runs'}")
    with mlflow.start_run() as run:
        trackers = Trackers(pytest.fail)
        trackers.take(figures("mlflow"))
        logged(trackers)
    client = mlflow.MlflowClient()
    (rate,) = client.get_metric_history(run.info.run_id, RATE)
    assert (rate.value, rate.step, rate.timestamp) == (12.5, 120, 1_000_500)
    assert client.get_run(run.info.run_id).data.tags["gpudash/limit"] == "data"


def test_trackio_has_figures_beside_the_scripts_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio")
    trackio = sys.modules["trackio"]
    trackio.init(project="p", embed=False)
    trackio.log({"loss": 3.0})
    trackers = Trackers(pytest.fail)
    trackers.take(figures("trackio"))
    logged(trackers)
    trackio.log({"loss": 2.0})
    trackio.finish()
    (file,) = Path(tmp_path).glob("*.db")
    store = sqlite3.connect(file)
    assert store.execute("select step from metrics order by id").fetchall() == [(0,), (1,)]
    ((held,),) = store.execute("select metrics from system_metrics").fetchall()
    assert json.loads(held)[RATE] == 12.5
