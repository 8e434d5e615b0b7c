"""Keep freed memory in the process, so that the next training step can reuse it.

By default glibc returns large freed blocks to the system, which then zeroes and maps every page again. For 128 CIFAR-10
images in a block of the paper's network, this takes nearly as long as the arithmetic. Accelerators and other C
libraries are not affected.
"""

import ctypes
import os
import platform

from psdenets.nn.fast.switch import enabled

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # names of the settings in malloc.h
_NEVER, _NONE = -1, 0
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory, unless its variables are set or PSDENETS_PLAIN=1; return whether it did."""
    if not enabled() or platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in _VARIABLES):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER) and mallopt(_MMAP_MAX, _NONE))
