"""Compare priors of the weights by bounds on the log evidence: fixed, learned, random and bridge.

python examples/priors.py      about a minute on one core
"""

import torch
from torch import nn

from sdeweights import (
    BrownianBridge,
    Cut,
    GaussianStart,
    LogNormal,
    OrnsteinUhlenbeck,
    Positive,
    StochasticDepth,
    importance_bound,
)

NOISE = 0.2
torch.manual_seed(0)
x = torch.linspace(-1, 1, 40)[:, None]
y = torch.sin(3 * x) + NOISE * torch.randn_like(x)
features = torch.cat([x, torch.zeros(40, 7)], 1)  # the hidden state has eight channels

LAYERS = {  # options of StochasticDepth
    "sigma fixed": {"prior": OrnsteinUhlenbeck(sigma=0.5)},
    "sigma learned": {"prior": OrnsteinUhlenbeck(sigma=Positive(0.5))},
    "theta random": {"prior": OrnsteinUhlenbeck(theta=LogNormal(1.0, 0.5), sigma=0.5)},
    "start random": {"prior": OrnsteinUhlenbeck(sigma=0.5), "start": GaussianStart(std=0.05, prior_std=0.5)},
    "bridge": {"prior": BrownianBridge(b=0.0, T=1.5, sigma=0.5)},
}


def log_likelihood(depth):
    """log p(D | w) of each weight path, (K,): y is the second channel plus noise."""
    located = depth(features)[..., 1:2]
    return torch.distributions.Normal(located, NOISE).log_prob(y).sum((1, 2))


for name, options in LAYERS.items():
    torch.manual_seed(1)
    f_h = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    depth = StochasticDepth(f_h, cut=Cut.full(), steps=6, samples=4, seed=0, **options)
    optimizer = torch.optim.Adam(depth.parameters(), lr=0.01)
    for _ in range(400):
        loss = -log_likelihood(depth).mean() + depth.kl  # the negative ELBO
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    depth.samples = 256
    with torch.no_grad():
        found = log_likelihood(depth)
        elbo = (found - depth.path.log_ratio).mean()
        bound = importance_bound(found, depth.path.log_ratio)
    print(f"{name:14s} ELBO {elbo:8.1f}, importance-weighted bound of 256 paths {bound:8.1f} nats")
