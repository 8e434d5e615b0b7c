"""Put partially stochastic depth into your own network: a regression in plain torch.

python examples/any_module.py      a few seconds on one core
"""

import torch
from torch import nn

from sdeweights import Cut, OrnsteinUhlenbeck, StochasticDepth

torch.manual_seed(0)
x = torch.cat([torch.linspace(-2, -0.7, 60), torch.linspace(0.7, 2, 60)])[:, None]  # a gap around 0
y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)

f_h = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24))
depth = StochasticDepth(f_h, cut=Cut.full(), prior=OrnsteinUhlenbeck(sigma=0.5), steps=6, samples=4, seed=0)
model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), depth, nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

for step in range(600):
    residual = (model(x) - y) / 0.1  # (samples, images, 1), in units of the noise
    loss = 0.5 * residual.pow(2).sum((1, 2)).mean() + depth.kl  # the negative ELBO, up to a constant
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 200 == 199:
        print(f"step {step + 1}: negative ELBO {loss.item():.1f}, of which KL {depth.kl.item():.1f}")

depth.samples = 64
with torch.no_grad():
    print(f"root mean squared error of the average prediction: {(model(x).mean(0) - y).pow(2).mean().sqrt():.3f}")
    for where, points in (("at the data", x), ("in the gap", torch.zeros(1, 1))):
        print(f"standard deviation over weight samples {where}: {model(points).std(0).mean():.3f}")
