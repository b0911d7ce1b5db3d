from docs.make_metrics import PAGE, reference
from gpudash.metrics import METRICS, since
from tests.scripted_run import gpu


def test_the_reference_is_that_of_the_table():
    assert PAGE.read_text(encoding="utf-8") == reference(), "make reference"


def test_a_reading_of_names_that_the_table_does_not_know_is_kept():
    assert since(gpu(10.0, fan_pct=30.0), 9.9).values == {"fan_pct": 30.0}


def test_a_metric_that_is_drawn_has_a_line_of_its_own_in_its_chart():
    drawn = [(one.line.chart, one.line.label) for one in METRICS.values() if one.line]
    assert len(drawn) == len(set(drawn))
