"""Strict JSON for metrics, which may be infinite or undefined.

    infinity  <->  "Infinity"        -infinity  <->  "-Infinity"        NaN  ->  null  ->  None

JSON has no number for these three. A label with probability 0 makes the NLL infinite, a valid result that `float(...)`
of the string gives back. NaN stands for a mean over nothing, for example the accuracy of an empty bin.
"""

from __future__ import annotations

import json
import math
from typing import Any

_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}


def dumps(value: Any, indent: int | None = None) -> str:
    """Return text that every JSON reader accepts.

    >>> dumps({"nll": math.inf, "accuracy": [0.5, math.nan]})
    '{"nll": "Infinity", "accuracy": [0.5, null]}'
    """
    return json.dumps(_encoded(value), indent=indent, allow_nan=False)


def loads(text: str) -> Any:
    """Read such text, with infinities as floats again; null stays None.

    >>> loads('{"nll": "Infinity", "accuracy": [0.5, null]}')
    {'nll': inf, 'accuracy': [0.5, None]}
    """
    return _decoded(json.loads(text))


def _encoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encoded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decoded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_decoded(inner) for inner in value]
    return _INFINITIES.get(value, value) if isinstance(value, str) else value
