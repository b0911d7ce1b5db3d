"""Every message between the processes, and every reading of a device, as frozen records.

The package is the wire format and nothing else: no I/O, no arithmetic, no torch. A module for each
conversation.
A point in time, such as `at_s`, is in seconds of `time.monotonic()`, which all processes of a
machine share. A duration has its unit in its name. `None` means "not measured".
"""
