"""Numbers and text as a person reads them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash import format as fmt

NOT_MEASURED = [None, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", NOT_MEASURED)
@pytest.mark.parametrize(
    "shown",
    [fmt.significant, fmt.milliseconds, fmt.compact, fmt.percent, fmt.memory,
     lambda value: fmt.with_unit(value, "W")],
)  # fmt: skip
def test_what_was_not_measured_is_a_dash(shown, value):
    assert shown(value) == "–"
    assert fmt.is_measured(value) is False


def test_a_zero_was_measured():
    assert fmt.is_measured(0.0) is True
    assert fmt.count(0) == "0"
    assert fmt.count(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.0433, "0.043"), (0.1, "0.10"), (0.4, "0.40"), (4.314, "4.31"),
     (9.994, "9.99"), (9.995, "10.0"), (43.14, "43.1"), (-43.14, "-43.1"), (99.94, "99.9"),
     (99.95, "100"), (431.4, "431"), (4314.4, "4,314"), (0.0005, "0.001"), (1e-6, "1.0e-06")],
)  # fmt: skip
def test_three_digits_are_significant(value, text):
    assert fmt.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.50"), (9.994, "9.99"), (9.995, "10.0"), (10.5, "10.5"), (99.94, "99.9"),
     (99.95, "100"), (100.4, "100"), (1234.4, "1,234")],
)  # fmt: skip
def test_milliseconds_take_four_characters_below_a_second(value, text):
    assert fmt.milliseconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.5, "2.5"), (750, "750"), (1000, "1k"), (1500, "1.5k"), (-1500, "-1.5k"),
     (2e7, "20M"), (1e15, "1e+03T")],
)  # fmt: skip
def test_an_axis_counts_in_thousands(value, text):
    assert fmt.compact(value) == text


def test_a_number_stands_before_its_unit():
    assert fmt.percent(97.4) == "97 %"
    assert fmt.percent(-0.3) == "0 %"
    assert fmt.count(4310) == "4,310"
    assert fmt.with_unit(1234.6, "W") == "1,235 W"
    assert fmt.with_unit(71.25, "W", decimals=1) == "71.2 W"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [("power", "", "power"), (97.4, "%", "97 %"), (11.44, "GiB", "11.4 GiB"),
     (71.25, "W", "71 W"), (None, "W", "–")],
)  # fmt: skip
def test_a_quantity_is_told_as_its_unit_is_read(value, unit, text):
    assert fmt.quantity(value, unit) == text


@pytest.mark.parametrize(
    ("mib", "text"),
    [(812, "812 MiB"), (1023, "1023 MiB"), (1024, "1.0 GiB"), (102_400, "100.0 GiB")],
)
def test_memory_is_in_gib_from_one_upwards(mib, text):
    assert fmt.memory(mib) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0:00:00"), (1, "0:00:01"), (59.9, "0:00:59"), (60, "0:01:00"), (8135.9, "2:15:35"),
     (360_000, "100:00:00"), (-5, "0:00:00"), (math.nan, "0:00:00"), (math.inf, "0:00:00")],
)  # fmt: skip
def test_a_clock_shows_whole_hours_minutes_and_seconds(seconds, text):
    assert fmt.clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (135, "2:15"), (1035, "17:15"), (3735, "1:02:15"), (36_000, "10:00:00")],
)
def test_a_moment_of_a_run_has_hours_from_one_on(seconds, text):
    assert fmt.minutes(seconds) == text


@pytest.mark.parametrize(
    ("cpu_pct", "there_are", "text"),
    [(130.0, 16, "1.3 of 16 cores"), (130.0, None, "1.3 cores"), (9.9, None, "0.10 cores"),
     (10.0, None, "0.1 cores"), (10.5, 2, "0.1 of 2 cores"), (0.0, None, "0.0 cores"),
     (0.5, None, "0.01 cores"), (1000.0, None, "10.0 cores"), (None, 16, "–")],
)  # fmt: skip
def test_small_uses_of_cores_have_two_decimals(cpu_pct, there_are, text):
    assert fmt.cores(cpu_pct, there_are) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [(9.99, "+999.0 %"), (12.572, "+1257 %"), (100.0, "> +9999 %"), (-0.5, "-50.0 %")],
)
def test_a_change_of_more_than_ten_times_has_no_decimals_and_of_a_hundred_times_no_figure(
    change, text
):
    assert fmt.change(change, None, 1.0) == fmt.change(change, 1.0, None) == text


def test_only_finite_numbers_are_measured():
    assert fmt.measured([1.0, None, math.nan, 0.0, math.inf]) == [1.0, 0.0]


def test_a_signal_has_its_name_or_its_number():
    assert [fmt.signal_name(number) for number in (9, 35)] == ["SIGKILL", "signal 35"]


def test_steps_are_counted():
    assert [fmt.steps(count) for count in (0, 1, 1234)] == ["0 steps", "1 step", "1234 steps"]


@pytest.mark.parametrize(
    ("width", "text"), [(7, "abcdef"), (6, "abcdef"), (5, "abcd…"), (1, "…"), (0, ""), (-1, "")]
)
def test_a_text_too_long_ends_in_an_ellipsis(width, text):
    assert fmt.clip("abcdef", width) == text


@pytest.mark.parametrize(
    ("text", "width", "clipped"),
    [("waits 1,234 ms", 9, "waits …"), ("waits 1,234 ms", 8, "waits …"), ("3.14 ms", 3, "…"),
     ("waits 1,234 ms", 12, "waits 1,234…"), ("rank 3, 12 ms", 10, "rank 3, …"),
     ("one… two", 5, "one…")],
)  # fmt: skip
def test_a_number_is_clipped_as_a_whole(text, width, clipped):
    assert fmt.clip(text, width) == clipped


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\tb", "a       b"), ("\x1b[2J !", "␛[2J !"), ("\x00", "␀"), ("\x7f", "␡"),
     ("\u00a0", " "), ("\u200b", "�"), ("\x85", "�"), ("\u2028", "�"), ("\u2029", "�")],
)  # fmt: skip
def test_what_a_terminal_would_obey_is_shown_as_a_picture(text, shown):
    assert fmt.plain(text) == shown


@given(st.text())
def test_plain_text_holds_nothing_a_terminal_obeys(text):
    assert fmt.plain(text).isprintable()
