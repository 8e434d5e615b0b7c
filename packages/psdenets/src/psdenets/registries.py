"""The names that flags accept, each with the reference (`module:attribute`) it resolves to.

Wherever one of these names is accepted, so is a reference to an attribute in your own Python file:

    hidden drift   Drift(channels, width, activation, generator) -> nn.Module of (t, h), h of shape (N, C, H, W);
                   activation: a function of one tensor
    prior          prior(sigma=..., theta=...) -> sdeweights.Prior
    likelihood     Likelihood() -> psdenets.models.likelihoods.Likelihood
    data set       load(root: Path) -> psdenets.data.Pool, or (pixels, labels, class names) as uint8 and integer arrays

The values are strings, so `--help` can list the names without importing torch.
"""

HIDDEN_DRIFTS = {
    "strided": "psdenets.nn.hidden_drifts:strided",
    "3-1-3": "psdenets.nn.hidden_drifts:three_one_three",
    "3-3": "psdenets.nn.hidden_drifts:three_three",
    "pre-3": "psdenets.nn.hidden_drifts:pre_three",
    "pre-3-3": "psdenets.nn.hidden_drifts:pre_three_three",
}

PRIORS = {"ou": "sdeweights:OrnsteinUhlenbeck", "brownian": "psdenets.models.priors:brownian"}

LIKELIHOODS = {"categorical": "psdenets.models.likelihoods:Categorical"}

DATASETS = {
    name: f"psdenets.data.sets:{name.replace('-', '_')}"
    for name in ("digits", "mnist", "fashion-mnist", "kmnist", "cifar10", "svhn", "omniglot", "imagefolder", "arrays")
}
