"""Calls to the NVIDIA driver library, in the only module that imports pynvml."""

import functools
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from gpudash.errors import GpudashError

T = TypeVar("T")


class GpuUnavailable(GpudashError):  # noqa: N818  # a state of the machine, with its reason
    """No GPU can be read, or no longer; `str(error)` is the reason as a sentence."""


class NotMeasured(Exception):  # noqa: N818  # an answer, not an error: other values are read
    """One value cannot be read; `str(error)` is the reason."""

    def __init__(self, reason: str, *, lasts: bool = False) -> None:
        super().__init__(reason)
        self.lasts = lasts
        """Whether the driver has refused it, and is not asked again for a while."""


SENTENCES = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no NVIDIA driver library (libnvidia-ml.so.1) was found",
    "NVML_ERROR_DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "the NVIDIA driver and its library differ in version; reload the driver or reboot"
    ),
    "NVML_ERROR_NO_PERMISSION": "the NVIDIA driver refuses permission",
    "NVML_ERROR_NOT_FOUND": "the NVIDIA driver shows no such GPU",
    "NVML_ERROR_GPU_IS_LOST": "the GPU was lost: it no longer answers the driver",
    "NVML_ERROR_GPU_NOT_FOUND": "the GPU was lost: the driver no longer lists it",
    "NVML_ERROR_RESET_REQUIRED": "the GPU needs a reset before it can be read",
    "NVML_ERROR_UNINITIALIZED": "the NVIDIA driver library was shut down",
    "NVML_ERROR_NOT_SUPPORTED": "not supported by this GPU",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "not known to this driver; a newer one is needed",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": "not known to this driver in this form",
    "NVML_ERROR_DEPRECATED": "no longer offered by this driver",
    "NVML_ERROR_INSUFFICIENT_POWER": "the GPU's external power cable is not attached",
}
"""pynvml's name of an error → sentence for the user."""

REFUSALS = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
    "NVML_ERROR_NO_PERMISSION",
)
"""Errors that mostly last: the call is not repeated for `ASK_AGAIN_S`."""

ASK_AGAIN_S = 16.0
"""Seconds until something refused is asked again: permissions are given, and MIG is switched."""

GONE = (
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
)
"""Errors after which nothing can be read from the GPU."""

FIELD_MEMBERS = dict(enumerate(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")))
"""NVML's number of a value type → member of the union that holds a field's value."""


class Nvml:
    """A connection to the driver library; calls that it refuses are not repeated for a while.

    Raises `GpuUnavailable`. NVML counts its connections, and each must be closed.
    """

    def __init__(self) -> None:
        self._pynvml = _bindings()
        self._refused: dict[str, tuple[str, float]] = {}  # question → reason, until when
        try:
            self._pynvml.nvmlInit()
        except self._pynvml.NVMLError as error:
            raise GpuUnavailable(self._sentence(error.value)) from None

    def close(self) -> None:
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError:
            return

    def call(self, function: str, *arguments: object, question: str = "") -> Any:
        """May raise `NotMeasured` or `GpuUnavailable`; a refusal is remembered under `question`."""
        question = question or function
        self._check(question)
        bound = getattr(self._pynvml, function, None)
        if bound is None:  # bindings older than the function
            raise self._failure(question, self._pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        try:
            return bound(*arguments)
        except self._pynvml.NVMLError as error:
            raise self._failure(question, error.value) from None
        except Exception as error:  # noqa: BLE001  # bindings unlike the driver: others are read
            reason = f"the bindings failed: {type(error).__name__}: {error}"
            raise NotMeasured(reason) from None

    def field(self, handle: object, field_id: int) -> float:
        """Return the value in NVML's unit. Raises as `call` does."""
        question = f"field {field_id}"
        self._check(question)
        answer = self.call("nvmlDeviceGetFieldValues", handle, [field_id])[0]
        if answer.nvmlReturn != self._pynvml.NVML_SUCCESS:
            raise self._failure(question, answer.nvmlReturn)
        if answer.valueType not in FIELD_MEMBERS:
            raise self.refuse(question, "the NVIDIA driver answers in a form not known here")
        return float(getattr(answer.value, FIELD_MEMBERS[answer.valueType]))

    def refuse(self, question: str, reason: str) -> NotMeasured:
        """Remember not to ask `question` again for a while, and return the error to raise."""
        self._refused[question] = reason, time.monotonic() + ASK_AGAIN_S
        return NotMeasured(reason, lasts=True)

    def _check(self, question: str) -> None:
        reason, until_s = self._refused.get(question, ("", 0.0))
        if time.monotonic() < until_s:
            raise NotMeasured(reason, lasts=True)

    def constant(self, name: str) -> Any:
        return getattr(self._pynvml, name)

    def _failure(self, question: str, code: int) -> Exception:
        reason = self._sentence(code)
        if code in self._codes(GONE):
            return GpuUnavailable(reason)
        if code in self._codes(REFUSALS):
            return self.refuse(question, reason)
        return NotMeasured(reason)

    def _codes(self, names: tuple[str, ...]) -> set[int]:
        return {getattr(self._pynvml, name) for name in names if hasattr(self._pynvml, name)}

    def _sentence(self, code: int) -> str:
        for name, sentence in SENTENCES.items():
            if getattr(self._pynvml, name, None) == code:
                return sentence
        return f"the NVIDIA driver answers “{self._pynvml.NVMLError(code)}”"


def first_measured(*readers: Callable[[], T]) -> T:
    """Prefer the earlier readers. Raises the last one's `NotMeasured` when none has a value."""
    *preferred, last = readers
    for read in preferred:
        try:
            return read()
        except NotMeasured:
            continue
    return last()


@functools.cache
def _bindings() -> ModuleType:
    import pynvml  # noqa: PLC0415  # takes 75 ms, which a run without a GPU need not pay

    return pynvml  # type: ignore[no-any-return]  # pynvml is untyped
