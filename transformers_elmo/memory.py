# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""What the C library of Linux does with freed memory; elsewhere, nothing is changed."""

import ctypes
import sys
from collections.abc import Callable


def glibc_function(name: str) -> Callable | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def return_freed_memory():
    """Return freed memory to the system.

    glibc keeps it in pieces that fit batches of other sizes badly, so the memory of the process would grow over a long
    text.
    """
    if malloc_trim := glibc_function("malloc_trim"):
        malloc_trim(0)


def keep_freed_memory():
    """Tell glibc to keep freed memory instead of returning it to the system.

    Each step of training frees and allocates the same large tensors. New pages cost more than computing on them: a
    sixth of the step's time on a virtual machine.
    """
    if mallopt := glibc_function("mallopt"):
        mallopt(-4, 0)  # M_MMAP_MAX: allocate no tensor by mmap
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: never shrink the heap
