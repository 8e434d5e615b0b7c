"""Memory that one training step frees is kept for the next one.

glibc gives large blocks back to the system when they are freed, and the system hands them out again page by page, full
of zeros. For 128 CIFAR-10 images in a block of the paper's network that takes nearly as long as the arithmetic.
Accelerators are not concerned, nor are other C libraries, which have no such call.
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of the settings in malloc.h
_NEVER, _NONE = -1, 0
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Tell glibc to keep what it has; whether it was told. Variables that set its allocator are left the last word."""
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _VARIABLES):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_MMAP_MAX, _NONE))
