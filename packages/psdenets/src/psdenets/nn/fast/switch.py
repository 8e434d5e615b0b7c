"""Switch between fast and plain versions: the environment variable PSDENETS_PLAIN=1 makes all layers plain."""

import os
from functools import cache


@cache
def enabled() -> bool:
    """Whether the fast versions are used. The environment is read once per process."""
    return os.environ.get("PSDENETS_PLAIN", "0") in ("", "0")
