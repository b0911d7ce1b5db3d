"""What the stages are made of: the place of a crop, and the mask, a function of its key."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy.signal import convolve2d

from workloads.jpeg_stages import corner, dilate, random_mask


@given(npst.arrays(bool, npst.array_shapes(min_dims=2, max_dims=2, max_side=12)))
def test_shifted_ors_are_the_convolution(mask: np.ndarray) -> None:
    cross = [[0, 1, 0], [1, 1, 1], [0, 1, 0]]
    grown = dilate(torch.from_numpy(mask))
    np.testing.assert_array_equal(grown.numpy(), convolve2d(mask, cross, mode="same").astype(bool))


@given(st.integers(0, 2**31 - 1))
def test_a_mask_is_a_quarter_wherever_it_is_drawn(key: int) -> None:
    keys = torch.tensor([key, key ^ 1 << 20])
    masks = random_mask(keys)  # (2, S, S)
    assert torch.equal(masks[0], random_mask(keys[0]))
    assert masks.float().mean((1, 2)).sub(0.25).abs().max() < 0.02
    together = (masks[0] & masks[1]).float().mean()
    assert abs(together - 0.25**2) < 0.01


def test_masks_show_no_pattern_over_many_keys() -> None:
    masks = random_mask(torch.arange(0, 2**31, 2**31 // 200)).float() - 0.25
    pixels = masks[0].numel()
    deviation = (0.25 * 0.75 / pixels) ** 0.5
    assert masks.mean((1, 2)).abs().max() < 5 * deviation
    for shift in ((0, 1), (1, 0), (1, 1), (0, 16), (16, 0)):
        shifted = masks.roll(shift, dims=(1, 2))
        assert ((masks * shifted).mean((1, 2)) / 0.1875).abs().max() * pixels**0.5 < 6


@given(st.integers(0, 2**31 - 1))
def test_a_crop_lies_within_the_image(key: int) -> None:
    top, left = corner(torch.tensor(key))
    assert 0 <= top <= 533 - 256
    assert 0 <= left <= 800 - 256
