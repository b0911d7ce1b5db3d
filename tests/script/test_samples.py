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


@pytest.mark.parametrize("mask", [MASK, MASK.long(), MASK.byte()])
def test_tokens_are_those_that_the_attention_mask_leaves(mask):
    assert tokens_in({"input_ids": IDS, "attention_mask": mask}) == (12, 52)


@pytest.mark.parametrize(
    "mask",
    [
        None,
        [[1] * 16] * 4,
        MASK.to("meta"),  # as on a device, it could only be waited for
        MASK[0],
        torch.zeros(4, 16),  # added to scores
        torch.nn.Parameter(MASK.long(), requires_grad=False),
    ],
)
def test_without_such_a_mask_padding_counts_and_is_not_known(mask):
    assert tokens_in({"input_ids": IDS, "attention_mask": mask}) == (64, None)


@pytest.mark.parametrize("batch", [[1, 2], {"input_ids": [1, 2]}, {"image": 1}, None])
def test_a_batch_without_a_tensor_of_input_ids_tells_of_no_tokens(batch):
    assert tokens_in(batch) is None


def test_a_batchs_bytes_are_those_of_its_tensors():
    rows = torch.zeros(4, 3)
    assert bytes_of({"x": rows, "names": ["a"] * 4, "y": (rows.half(), [rows])}) == 48 + 24 + 48
    assert bytes_of("text") == 0
    assert bytes_of((rows, torch.eye(3).to_sparse())) == 48  # of those whose size is known
