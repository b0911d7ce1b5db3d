"""Where gpudash's own words end and those of the user's command begin."""

import pytest

from gpudash.cli.main import parse
from gpudash.errors import UsageError


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["run", "train.py"], ["train.py"]),
        (["run", "train.py", "--record", "x", "-q"], ["train.py", "--record", "x", "-q"]),
        (["run", "--record", "r.csv", "train.py", "r"], ["train.py", "r"]),
        (["run", "--record=r.csv", "train.py"], ["train.py"]),
        (["run", "--rec", "r.csv", "train.py"], ["train.py"]),
        (["run", "-q", "--watch", "-m", "pkg", "-q"], ["-m", "pkg", "-q"]),
        (["run", "--watch", "--", "torchrun", "--", "x"], ["--", "torchrun", "--", "x"]),
        (["run", "--python", "python3", "-m", "train"], ["-m", "train"]),
        (["run", "train.py", "x" * 5000], ["train.py", "x" * 5000]),
        (["ab", "--lever", "a=1,2", "--", "train.py", "--json"], ["--", "train.py", "--json"]),
        (["ab", "encdec", "--lever", "a=1,2"], []),
    ],
)
def test_all_words_after_the_commands_name_are_its_own(words, command):
    assert parse(words)[1].user_command == command


def test_gpudashs_words_before_the_command_are_checked():
    _, arguments = parse(["run", "--interval", "2", "--watch", "train.py", "--interval", "9"])
    assert arguments.interval == 2
    with pytest.raises(UsageError, match="unknown option '--watsh'"):
        parse(["run", "--watsh", "train.py"])
    with pytest.raises(UsageError, match="--python needs a value: --python PATH"):
        parse(["run", "--python", "-m", "train"])
