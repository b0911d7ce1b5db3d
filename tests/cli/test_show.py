"""`gpudash show`: the lines for a lever, or for one of its values."""

import json

import msgspec
import pytest

from gpudash.cli.catalogue import Shown, look_up
from gpudash.cli.main import main
from workloads.levers import LeverError


def show(what: str, workload: str | None = None, *, as_json: bool = False) -> int:
    more = ["--workload", workload] if workload else []
    return main(["show", what, *more, *(["--json"] if as_json else [])])


def test_a_value_is_shown_with_its_source_note_and_lines(capsys) -> None:
    assert show("precision=bf16") == 0
    printed = capsys.readouterr().out
    assert "Source: torch.backends, torch.autocast\n" in printed
    assert "precision=bf16: The weights stay float32." in printed
    assert "\n+    with torch.autocast(device.type, dtype=torch.bfloat16):\n" in printed
    assert "Marked against a plain training loop" in printed
    assert "fp32_precision" not in printed


def test_a_lever_is_shown_with_all_its_values(capsys) -> None:
    assert show("precision") == 0
    printed = capsys.readouterr().out
    places = [printed.index(f"precision={value}: ") for value in ("fp32", "tf32", "bf16")]
    assert places == sorted(places)


def test_any_number_is_written_into_the_lines(capsys) -> None:
    show("num_workers=16")
    assert "\n+loader = DataLoader(dataset, batch_size=batch_size, num_workers=16)\n" in (
        capsys.readouterr().out
    )
    show("num_workers")
    assert "num_workers=N)" in capsys.readouterr().out


def test_without_lines_only_the_reason_is_shown(capsys) -> None:
    show("channels_last=off")
    printed = capsys.readouterr().out
    assert printed.endswith("channels_last=off: PyTorch's default: there is nothing to write.\n")


@pytest.mark.parametrize("what", ["pipelined", "loss=minmax", "seed=3", "model_scale"])
def test_the_document_is_the_record_and_says_its_version(what: str, capsys) -> None:
    show(what, as_json=True)
    document = capsys.readouterr().out
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
