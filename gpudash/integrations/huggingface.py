"""Callback for the Hugging Face Trainer: `callbacks=[GpudashCallback()]`. Extra: `transformers`."""

from typing import Any

from transformers import TrainerCallback

from gpudash import in_training

explicit = in_training("script.explicit")


class GpudashCallback(TrainerCallback):  # type: ignore[misc]  # the base may not be there to be checked
    """Declares the Trainer's steps. Samples and tokens are counted from the loader's batches."""

    def __init__(self) -> None:
        self._is_open = False

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Begin a step; end one that is still open as failed."""
        if self._is_open:
            explicit.end(counts=False)
        self._is_open = True
        explicit.begin()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """End the step after its optimizer has stepped."""
        self._is_open = False
        explicit.end()
