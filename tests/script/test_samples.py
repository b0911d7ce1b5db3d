"""How many samples and tokens a batch holds; None if it does not show it."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from gpudash.script.samples import bytes_of, first_dimension, tokens_in

BATCH, LABELS = torch.ones(8, 3, 4, 4), torch.ones(8)
IMAGE, LABEL, BOXES = torch.ones(3, 4, 4), torch.ones(()), torch.ones(5, 4)


@pytest.mark.parametrize(
    "batch",
    [
        BATCH,
        [BATCH, LABELS],
        (LABEL, BATCH),
        {"rate": 0.1, "images": BATCH},
        [{"images": BATCH}, {"labels": LABELS}],
        ([BATCH, BATCH], LABELS),
        {"views": [BATCH, BATCH], "labels": LABELS},
        [pack_sequence([torch.ones(5), torch.ones(2)]), LABELS],
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_the_first_tensor_with_a_dimension_gives_the_samples(batch):
    assert first_dimension(batch) == 8


@pytest.mark.parametrize(
    "batch",
    [
        None,
        [],
        [["a", "b"], LABEL],
        ((IMAGE, IMAGE), ({"boxes": BOXES}, {"boxes": BOXES})),
        [(IMAGE, 1), (IMAGE, 2)],
        [{"image": IMAGE}, {"image": IMAGE}],
        {"images": [IMAGE, IMAGE], "targets": [{"boxes": BOXES}, {"boxes": BOXES}]},
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_a_list_of_single_samples_gives_no_number(batch):
    assert first_dimension(batch) is None


IDS = torch.ones(4, 16, dtype=torch.long)
MASK = torch.arange(16).expand(4, 16) < 3


MASKS = {
    "what the attention mask leaves": (MASK, (12, 52)),
    "of whole numbers": (MASK.long(), (12, 52)),
    "of bytes": (MASK.byte(), (12, 52)),
    # padding counts, and is not known, …
    "without a mask": (None, (64, None)),
    "a mask that is no tensor": ([[1] * 16] * 4, (64, None)),
    "a mask that could only be waited for, as on a device": (MASK.to("meta"), (64, None)),
    "a mask of another shape": (MASK[0], (64, None)),
    "a mask that is added to scores": (torch.zeros(4, 16), (64, None)),
    "a mask that is learned": (
        torch.nn.Parameter(MASK.long(), requires_grad=False),
        (64, None),
    ),
}
TOKENS = {
    **{what: ({"input_ids": IDS, "attention_mask": mask}, n) for what, (mask, n) in MASKS.items()},
    "a list": ([1, 2], None),
    "ids that are no tensor": ({"input_ids": [1, 2]}, None),
    "no ids": ({"image": 1}, None),
    "no batch": (None, None),
}


@pytest.mark.parametrize(("batch", "tokens"), TOKENS.values(), ids=TOKENS)
def test_tokens_are_those_of_input_ids_that_the_mask_leaves(batch, tokens):
    assert tokens_in(batch) == tokens


def test_a_batchs_bytes_are_those_of_its_tensors():
    rows = torch.zeros(4, 3)
    assert bytes_of({"x": rows, "names": ["a"] * 4, "y": (rows.half(), [rows])}) == 48 + 24 + 48
    assert bytes_of("text") == 0
    assert bytes_of((rows, torch.eye(3).to_sparse())) == 48  # of those whose size is known
