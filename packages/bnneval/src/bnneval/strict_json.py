"""Strict JSON for metrics, which may be infinite or undefined.

    infinity  <->  "Infinity"        -infinity  <->  "-Infinity"        NaN  ->  null  ->  None

JSON has no numbers for these three values. The NLL is infinite if a label has probability 0; `float("Infinity")` parses
it. NaN is the mean of an empty set, such as the accuracy of an empty bin.
"""

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
    """The inverse of `dumps`, with infinities as floats; null stays None.

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
