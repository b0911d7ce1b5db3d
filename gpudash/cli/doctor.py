"""`gpudash doctor`."""

from gpudash.cli.options import add_json
from gpudash.cli.parser import Verb

VERB = Verb(
    name="doctor",
    summary="What this machine can measure, and what it cannot and why.",
    add_arguments=add_json,
    examples=(
        ("gpudash doctor", "look at this machine; takes a few seconds"),
        ("gpudash doctor --json", "the same for a program"),
    ),
    configuration="reported",
    module="gpudash.cli.doctor_checks",
)
