import msgspec
import pytest

from gpudash.compare.sweep import plot
from gpudash.errors import RecordingError, UsageError
from tests.compare import test_sweep_table
from tests.compare.test_sweep_table import GRID, of

RESULTS = [
    [
        msgspec.structs.replace(cell, samples_per_s=cell.steps_per_s and 8 * cell.steps_per_s)
        for cell in row
    ]
    for row in test_sweep_table.RESULTS
]
TITLE = "encdec on NVIDIA H200 data=resident"


@pytest.fixture(scope="module", autouse=True)
def matplotlib():
    """Import matplotlib once: that takes longer than a plot."""
    pytest.importorskip("matplotlib.figure")


def test_a_vector_plot_has_the_tables_contents(tmp_path):
    plot.draw(tmp_path / "sweep.svg", TITLE, GRID, RESULTS)
    text = (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    assert "<svg" in text
    for shown in (TITLE, "batch_size=128", "pipelined=on", "+6.2 % [+5.9, +6.5]", "out of memory"):
        assert f"<!-- {shown} -->" in text


def test_a_bar_of_no_length_says_that_nothing_was_measured(tmp_path):
    unmeasured = [RESULTS[0], [RESULTS[1][0], of()]]
    for results, marks in ((RESULTS, 0), (unmeasured, 1)):
        plot.draw(tmp_path / "sweep.svg", TITLE, GRID, results)
        text = (tmp_path / "sweep.svg").read_text(encoding="utf-8")
        assert text.count("<!-- – -->") == marks


@pytest.mark.parametrize("name", ["sweep.png", "sweep.PNG"])
def test_a_pixel_picture(tmp_path, name):
    plot.check(tmp_path / name)
    plot.draw(tmp_path / name, TITLE, GRID, RESULTS)
    assert (tmp_path / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_sweep_without_rows_is_drawn_too(tmp_path):
    grid = msgspec.structs.replace(GRID, rows=({},))
    plot.draw(tmp_path / "sweep.svg", TITLE, grid, RESULTS[:1])
    assert (tmp_path / "sweep.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", ["sweep.pdf", "sweep", "sweep.svg.gz", ".svg"])
def test_another_kind_of_file_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"valid: a name ending in \.svg or \.png"):
        plot.check(tmp_path / name)


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'gpudash\[plot\]'"):
        plot.check(tmp_path / "sweep.svg")


def test_a_plot_that_cannot_be_written_is_reported_in_a_line(tmp_path):
    with pytest.raises(RecordingError, match=r"cannot write .*sweep\.svg: no such file"):
        plot.draw(tmp_path / "gone" / "sweep.svg", TITLE, GRID, RESULTS)
