"""A flow along weight paths that are constants:  dh = f_h(t, h; w_t) dt  with S given paths w."""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn

from sdeweights.flow import shared_steps, steps_of
from sdeweights.functional import Functional
from sdeweights.hidden import SCHEMES, PathStep, take_steps
from sdeweights.path import WeightPath


@final
class FrozenDepth(nn.Module):
    """A deterministic module without parameters: (N, ...) -> (S, N, ...), for `torch.export` and `torch.compile`.

    The weights of all steps are buffers. Samples are computed one after the other, and the steps that they share once,
    as in `flow`, with the same bits. Unlike `flow`, it does not look for NaN and infinity, since a traced graph cannot.

    Args:
        f_h: a module as a function of (t, h, w).
        path: S weight paths.
        method: scheme for h, a name in `sdeweights.hidden.SCHEMES`.
        per_sample: whether inputs are (S, N, ...), one for each path.
    """

    left: Tensor
    right: Tensor | None
    starts: Tensor
    ends: Tensor

    def __init__(self, f_h: Functional, path: WeightPath, method: str, per_sample: bool = False) -> None:
        super().__init__()
        self.f_h, self.method, self.per_sample = f_h, method, per_sample
        scheme = SCHEMES[method]
        samples = steps_of(path, scheme.fraction)
        self.shared, self.same_start = 0 if per_sample else shared_steps(path, scheme), path.shared >= 0
        self.lengths = tuple((step.dt, step.starts_at_reset, step.ends_at_reset) for step in samples[0])
        self.register_buffer("starts", torch.stack([step.t0 for step in samples[0]]))
        self.register_buffer("ends", torch.stack([step.t1 for step in samples[0]]))
        self.register_buffer("left", torch.stack([torch.stack([step.w0.detach() for step in s]) for s in samples]))
        right = torch.stack([torch.stack([step.w1.detach() for step in s]) for s in samples])
        self.register_buffer("right", right if scheme.fraction is None else None)

    @property
    def samples(self) -> int:
        """Number of weight paths."""
        return len(self.left)

    def forward(self, x: Tensor) -> Tensor:
        """h at t = 1 along every path: (S, N, ...)."""
        scheme, steps = SCHEMES[self.method], [list(self._steps(i)) for i in range(self.samples)]
        if self.per_sample:
            if len(x) != self.samples:
                raise ValueError(f"expected inputs of shape ({self.samples}, N, ...), got {tuple(x.shape)}")
            states = [scheme.start(self.f_h, own[0], h) for own, h in zip(steps, x.unbind(), strict=True)]
        elif not self.same_start:  # the first state of a scheme may depend on w_0
            states = [scheme.start(self.f_h, own[0], x) for own in steps]
        else:
            first = scheme.start(self.f_h, steps[0][0], x)
            states = [take_steps(self.f_h, scheme, steps[0][: self.shared], first)] * self.samples
        ends = [take_steps(self.f_h, scheme, own[self.shared :], s)[0] for own, s in zip(steps, states, strict=True)]
        return torch.stack(ends)

    def extra_repr(self) -> str:
        return f"samples={self.samples}, steps={len(self.lengths)}, method={self.method!r}"

    def _steps(self, sample: int) -> Iterator[PathStep]:
        left = self.left[sample]
        right = left if self.right is None else self.right[sample]
        for k, (dt, starts_at_reset, ends_at_reset) in enumerate(self.lengths):
            yield PathStep(self.starts[k], self.ends[k], dt, left[k], right[k], starts_at_reset, ends_at_reset)
