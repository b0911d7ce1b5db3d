import msgspec
import pytest

from gpudash.compare.sweep.grid import Grid, SettingResult
from gpudash.compare.sweep.table import as_markdown, as_text, cell, cells, label, legend, unit
from gpudash.format import change, figure

OFF, ON = {"pipelined": "off"}, {"pipelined": "on"}
GRID = Grid(
    rows=({"batch_size": "8"}, {"batch_size": "128"}),
    columns=(OFF, ON),
    rounds=3,
    min_steps=3,
    min_s=0.0,
)

ONE_SIZE = msgspec.structs.replace(GRID, rows=GRID.rows[:1])


def of(**values):
    unmeasured = dict.fromkeys(SettingResult.__struct_fields__)
    return SettingResult(**unmeasured | {"settings": {}, "out_of_memory": False} | values)


RESULTS = [
    [
        of(steps_per_s=34.555, samples_per_s=276.44, gpu_util_pct=85.4),
        of(
            steps_per_s=36.7125,
            samples_per_s=293.7,
            gpu_util_pct=99.0,
            change=0.0625,
            low=0.0591,
            high=0.0649,
        ),
    ],
    [
        of(steps_per_s=0.0359, samples_per_s=4.5934, cpu_pct=140.2),
        of(failure="out of memory: went back to batch_size=8", out_of_memory=True),
    ],
]


def test_the_text_is_aligned():
    assert as_text(cells(GRID, RESULTS)) == (
        "batch_size  pipelined=off          pipelined=on\n"
        "──────────  ─────────────────────  ─────────────────────────────────────\n"
        "8           276.4 (GPU 85 %)       293.7, +6.2 % [+5.9, +6.5] (GPU 99 %)\n"
        "128         4.593 (CPU 1.4 cores)  out of memory"
    )


def test_a_table_wider_than_the_terminal_is_listed_cell_by_cell():
    assert as_text(cells(GRID, RESULTS), columns=70).splitlines()[2:4] == [
        "8           pipelined=off  276.4 (GPU 85 %)",
        "            pipelined=on   293.7, +6.2 % [+5.9, +6.5] (GPU 99 %)",
    ]


def test_cells_in_a_list_stand_under_their_unit():
    counts = tuple({"nproc": count, **row} for count, row in zip("12", GRID.rows, strict=True))
    grid = msgspec.structs.replace(GRID, rows=counts)
    head = as_text(cells(grid, RESULTS), 40, unit(grid)).splitlines()[0]
    assert head.split("  ")[-1].strip() == unit(grid) == "steps/s and samples/s of all processes"


def test_a_table_as_wide_as_the_terminal_is_not_listed():
    table = cells(GRID, RESULTS)
    assert as_text(table, columns=74) == as_text(table)  # two blanks after each column
    assert as_text(table, columns=73) != as_text(table)


def test_the_same_in_markdown():
    assert as_markdown(cells(GRID, RESULTS)) == (
        "| batch_size | pipelined=off | pipelined=on |\n"
        "|---|---|---|\n"
        "| 8 | 276.4 (GPU 85 %) | 293.7, +6.2 % [+5.9, +6.5] (GPU 99 %) |\n"
        "| 128 | 4.593 (CPU 1.4 cores) | out of memory |"
    )


def test_a_bar_in_a_reason_does_not_end_its_cell_in_markdown():
    assert as_markdown([["a"], ["b|c"]]).splitlines()[-1] == r"| b\|c |"


def test_with_one_row_the_variants_go_down():
    assert cells(ONE_SIZE, RESULTS[:1]) == [
        ["", "batch_size=8"],
        ["pipelined=off", "34.6 (GPU 85 %)"],
        ["pipelined=on", "36.7, +6.2 % [+5.9, +6.5] (GPU 99 %)"],
    ]


def test_without_rows_the_head_says_what_stands_below():
    none = Grid(rows=({},), columns=(OFF, ON), rounds=3, min_steps=3, min_s=0.0)
    assert cells(none, RESULTS[:1])[0] == ["", "steps/s"]


def test_if_batch_sizes_differ_down_the_table_the_rate_is_in_samples():
    assert unit(GRID) == "samples/s"
    assert unit(ONE_SIZE) == "steps/s"


def test_if_batch_sizes_differ_the_rate_is_in_samples():
    """With 64 samples a step there are fewer steps than with 8, and the throughput is higher."""
    sizes = ({"batch_size": "8"}, {"batch_size": "64"})
    grid = Grid(rows=({},), columns=sizes, rounds=3, min_steps=3, min_s=0.0)
    results = [
        [
            of(steps_per_s=281.0, samples_per_s=2248.0),
            of(steps_per_s=80.3, samples_per_s=5139.2, change=1.286),
        ]
    ]
    assert legend(grid).startswith("samples/s, change of the throughput against")
    assert cells(grid, results) == [
        ["", "samples/s"],
        ["batch_size=8", "2,248"],
        ["batch_size=64", "5,139, +128.6 %"],
    ]
    assert legend(ONE_SIZE).startswith("steps/s, change of the throughput against")


def test_two_columns_are_never_listed():
    table = cells(ONE_SIZE, RESULTS[:1])
    assert as_text(table, columns=20) == as_text(table)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (of(), "–"),
        (of(steps_per_s=0.123456), "0.1235"),
        (of(steps_per_s=9.99), "9.99"),
        (of(steps_per_s=1234.5678), "1,235"),
        (of(steps_per_s=20.0, change=0.1), "20.0, +10.0 %"),
        (of(steps_per_s=20.0, gpu_util_pct=0.0, cpu_pct=90.0), "20.0 (GPU 0 %)"),
        (of(steps_per_s=20.0, core_wait_pct=14.9), "20.0"),
        (of(steps_per_s=20.0, core_wait_pct=15.0), "20.0 (waited for a core 15 %)"),
        (
            of(steps_per_s=20.0, host_ms=2.5, core_wait_pct=48.4),
            "20.0 (host 2.5 ms, waited for a core 48 %)",
        ),
        (
            of(failure="precision=tf32: a CPU has no TF32"),
            "precision=tf32: a CPU has no TF32",
        ),
        (of(steps_per_s=20.0, failure="went back", out_of_memory=True), "out of memory"),
    ],
)
def test_a_cell_has_a_settings_result_or_why_there_is_none(result, text):
    assert cell(result) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.123456, "0.1235"), (9.994, "9.994"), (10.0, "10.0"), (10.56, "10.6")],
)
def test_a_figure_has_one_decimal_and_a_small_one_four_digits(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        ((0.0631, 0.0591, 0.0677), "+6.3 % [+5.9, +6.8]"),
        ((-0.021, -0.03, -0.012), "-2.1 % [-3.0, -1.2]"),
        ((-0.0001, -0.0004, 0.0003), "+0.0 % [+0.0, +0.0]"),
        ((1.9, -0.9, float("inf")), "+190.0 % [-90.0, > +9999]"),
        ((0.1, None, None), "+10.0 %"),
    ],
)
def test_a_change_is_shown_with_its_interval_in_percent(estimate, text):
    assert change(*estimate) == text


BASE = {"augment_on": "cpu", "rotation": "per_image", "pin_memory": "off", "data": "loader"}
BATCHED, PINNED = {"augment_on": "batched"}, {"pin_memory": "on"}


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (
            (BASE, BASE | BATCHED, BASE | BATCHED | PINNED | {"rotation": "batched"}),
            [
                "augment_on=cpu rotation=per_image pin_memory=off",  # data is the same in all
                "augment_on=batched",
                "augment_on=batched rotation=batched pin_memory=on",
            ],
        ),
        (  # not by what others than the first differ in
            (BASE, BASE | BATCHED, BASE | PINNED),
            ["augment_on=cpu pin_memory=off", "augment_on=batched", "pin_memory=on"],
        ),
        ((OFF,), ["pipelined=off"]),  # alone, in full
    ],
)
def test_a_variant_is_the_first_one_plus_what_differs(columns, names):
    assert [label(column, columns) for column in columns] == names


def test_several_levers_of_a_row_are_named_in_its_corner():
    pair = {"batch_size": "8", "precision": "bf16"}
    both = msgspec.structs.replace(GRID, rows=(pair, {"batch_size": "8", "precision": "fp32"}))
    assert [row[0] for row in cells(both, RESULTS)] == [
        "batch_size, precision",
        "8 bf16",
        "8 fp32",
    ]
