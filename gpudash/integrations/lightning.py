"""Callback for Lightning: `Trainer(callbacks=[GpudashCallback()])`. Extra: `lightning`."""

from typing import Any

from lightning.pytorch.callbacks import Callback

from gpudash import in_training

explicit = in_training("script.explicit")
samples_of = in_training("script.samples")
total = in_training("statistics").total


class GpudashCallback(Callback):  # type: ignore[misc]  # the base may not be there to be checked
    """Declares Lightning's steps. A step has several batches where gradients are accumulated."""

    def __init__(self) -> None:
        self._batches: list[Any] | None = None  # samples and tokens of each batch in the step
        self._since = 0  # `global_step` when the step began

    def on_train_batch_start(self, trainer: Any, _module: Any, batch: Any, _number: int) -> None:
        """Begin a step, or add a batch to the step in progress."""
        if self._batches is None:
            self._batches, self._since = [], trainer.global_step
            explicit.begin()
        found = samples_of.tokens_in(batch)
        is_known = found is not None and (
            found.padding is not None or "attention_mask" not in batch
        )
        # a mask that is on the device by now is on the host in the loader's batch
        tokens = found.number if is_known else None
        self._batches.append((samples_of.first_dimension(batch), tokens))

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """End the step if its optimizer has stepped."""
        if self._batches is not None and trainer.global_step != self._since:
            samples, tokens = map(total, zip(*self._batches, strict=True))
            explicit.end(samples, tokens)
            self._batches = None

    def on_exception(self, *_: Any) -> None:
        """End the step as failed."""
        self._leave()

    def on_train_end(self, *_: Any) -> None:
        """End a step that is still open as failed."""
        self._leave()

    def _leave(self) -> None:
        if self._batches is not None:
            explicit.end(counts=False)
            self._batches = None
