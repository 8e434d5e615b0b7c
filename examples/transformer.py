"""Make a transformer layer stochastic, train it, and keep its weight samples as a module that can be exported.

python examples/transformer.py      less than a minute on one core
"""

import torch
from torch import nn

from sdeweights import Cut, OrnsteinUhlenbeck, StochasticDepth

torch.manual_seed(0)
tokens = torch.randint(8, (256, 6))
labels = (tokens == 0).any(1).long()  # does the sequence contain a zero?

f_h = nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=16, dropout=0.0, batch_first=True)
depth = StochasticDepth(f_h, cut=Cut.ode_first(0.5), prior=OrnsteinUhlenbeck(sigma=1.0), steps=4, seed=0)
embed, head = nn.Embedding(8, 16), nn.Linear(16, 2)
optimizer = torch.optim.Adam([*embed.parameters(), *depth.parameters(), *head.parameters()], lr=0.01)

for step in range(100):
    logits = head(depth(embed(tokens)).mean(-2))  # one weight path for the whole batch
    loss = nn.functional.cross_entropy(logits, labels) + depth.kl / len(tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss.item():.3f}, KL {depth.kl.item():.2f}")

frozen = depth.frozen(samples=16, generator=torch.Generator().manual_seed(0))  # no parameters, no randomness
with torch.no_grad():
    probs = head(frozen(embed(tokens)).mean(-2)).softmax(-1)  # (16, 256, 2)
    assert torch.equal(frozen(embed(tokens)), frozen(embed(tokens)))
print(f"accuracy of 16 averaged samples: {(probs.mean(0).argmax(-1) == labels).float().mean():.1%}")
print(f"mean standard deviation of a probability over weight samples: {probs[..., 1].std(0).mean():.4f}")
