"""Lower bounds on the log evidence  log p(D) = log E_P p(D | w)  from K weight paths w_k of the posterior Q.

    ELBO         mean_k  log p(D | w_k) - log (dQ/dP)(w_k)
    importance   log mean_k  p(D | w_k) (dP/dQ)(w_k)

Both average the same K numbers, before or after the logarithm. The importance-weighted bound (Burda, Grosse and
Salakhutdinov, 2016) is at least the ELBO, rises with K in the mean, and tends to the log evidence.
"""

import math

from torch import Tensor


def importance_bound(log_likelihood: Tensor, log_ratio: Tensor) -> Tensor:
    """The importance-weighted bound, a scalar; differentiable.

    Args:
        log_likelihood: log p(D | w_k) of all data for each path, (K,).
        log_ratio: log dQ/dP of each path, (K,): `WeightPath.log_ratio`, summed over processes if there are several.

    Example: for two paths with p(D | w) = 0.1 and 0.3 that follow the prior, the bound is log 0.2.
        >>> importance_bound(torch.tensor([0.1, 0.3]).log(), torch.zeros(2)).exp()
        tensor(0.2000)
    """
    if log_likelihood.ndim != 1 or log_likelihood.shape != log_ratio.shape or len(log_ratio) == 0:
        raise ValueError(
            "expected log_likelihood and log_ratio of shape (K,), one number per path, "
            f"got {tuple(log_likelihood.shape)} and {tuple(log_ratio.shape)}"
        )
    return (log_likelihood - log_ratio).logsumexp(0) - math.log(len(log_ratio))
