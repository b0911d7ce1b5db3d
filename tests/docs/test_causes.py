import tomllib
from pathlib import Path

CAUSES = Path(__file__).parents[2] / "benchmarks" / "causes"
SHARED = {"cause", "ranks"}


def test_what_limits_each_training_whose_cause_is_known_is_in_the_table():
    table = tomllib.loads((CAUSES / "truth.toml").read_text(encoding="utf-8"))
    assert set(table) == {path.stem for path in CAUSES.glob("*.py")} - SHARED
    for script, row in table.items():
        cause = script.partition("_")[0]
        begins = [limit for limit in row["limits"] if limit.startswith(cause)]
        assert begins or cause == "two", script
        assert isinstance(row["best"], list), script
