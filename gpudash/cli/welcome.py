"""What `gpudash` alone prints where torch is not installed beside it: what can be done."""

from gpudash import __version__
from gpudash.format import plain
from gpudash.run.runs import living
from workloads import CATALOGUE
from workloads.needs import install_line

ROWS = (
    ("gpudash run train.py ARGS …", "the dashboard over it; it brings its own torch"),
    ("gpudash run -- torchrun … train.py", "over any command"),
    ("gpudash attach", "over one that runs already"),
    ("gpudash ab --lever compile=off,on train.py", "is one value faster? how sure?"),
)
RECORDED = (
    ("gpudash replay run.csv", "report, compare and export read one too"),
    ("gpudash doctor", "what this machine can measure"),
    ("gpudash --help", "every command"),
)


def welcome() -> str:
    """Return what can be done without torch, what runs, and how to install the rest."""
    return "\n".join(
        [
            f"gpudash {__version__}",
            "",
            "Your own training, unmodified:",
            *_table(ROWS),
            *(plain(f"  {run.facts.name} runs, process {run.facts.pid}") for run in living()),
            "",
            "A recording, and this machine:",
            *_table(RECORDED),
            "",
            f"The reference workloads {', '.join(CATALOGUE)}",
            "need torch in gpudash's own environment, a few GB:",
            f"  {install_line()}",
        ]
    )


def _table(rows: tuple[tuple[str, str], ...]) -> list[str]:
    width = max(len(command) for command, _ in ROWS)
    return [f"  {command:<{width}}   {what}" for command, what in rows]
