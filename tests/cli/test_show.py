"""`gpudash show`: the lines for a lever, or for one of its values."""

import json

import msgspec
import pytest

from gpudash.cli.catalogue import Shown, look_up
from workloads.levers import LeverError


def test_a_value_is_shown_with_its_source_note_and_lines(printed) -> None:
    shown = printed("show", "precision=bf16")
    for part in (
        "Source: torch.backends, torch.autocast\n",
        "precision=bf16: The weights stay float32.",
        "\n+    with torch.autocast(device.type, dtype=torch.bfloat16):\n",
        "Marked against a plain training loop",
    ):
        assert part in shown
    assert "fp32_precision" not in shown


def test_a_lever_is_shown_with_all_its_values(printed) -> None:
    shown = printed("show", "precision")
    places = [shown.index(f"precision={value}: ") for value in ("fp32", "tf32", "bf16")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        (
            "num_workers=16",
            "\n+loader = DataLoader(dataset, batch_size=batch_size, num_workers=16)\n",
        ),
        ("batch_size=08", "batch_size=8: "),
        ("num_workers", "num_workers=N)"),
        (
            "channels_last=off",  # without lines there is the reason alone
            "\n\nchannels_last=off: PyTorch's default: there is nothing to write.\n",
        ),
    ],
)
def test_any_number_is_written_into_the_lines(what: str, line: str, printed) -> None:
    assert line in printed("show", what)


@pytest.mark.parametrize("what", ["pipelined", "loss=minmax", "seed=3", "model_scale"])
def test_the_document_is_the_record_and_says_its_version(what: str, printed) -> None:
    document = printed("show", what, "--json")
    assert msgspec.json.decode(document, type=Shown) == look_up(what, None)
    assert json.loads(document)["schema_version"] == 1


def test_a_workload_narrows_the_levers_down() -> None:
    assert "Encode batch" in look_up("pipelined", "encdec").summary
    assert "Augment batch" in look_up("pipelined", "augment").summary
    with pytest.raises(LeverError, match="unknown lever 'loss'; valid: pipelined"):
        look_up("loss", "encdec")
    assert look_up("loss", None).lever == "loss"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("precison", "unknown lever 'precison'; valid: pipelined, batch_size"),
        ("", "unknown lever ''"),
        ("precision=", "lever precision: '' is not valid; valid: fp32, tf32, bf16"),
        ("precision=fp8", "lever precision: 'fp8' is not valid; valid: fp32, tf32, bf16"),
        ("batch_size=0", "lever batch_size: '0' is not valid; valid: a whole number from 1"),
        ("../off", "unknown lever '../off'"),
    ],
)
def test_unknown_names_are_refused_with_valid_ones(what: str, why: str, refused) -> None:
    assert why in refused("show", what)
