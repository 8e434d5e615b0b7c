"""The names that flags accept, each with the reference (`module:attribute`) it resolves to.

Wherever one of these names is accepted, so is a reference to an attribute in your own Python file:

    hidden drift   Drift(channels, width, activation, generator) -> nn.Module of (t, h), h of shape (N, C, H, W);
                   activation: a function of one tensor
    prior          prior(sigma=..., theta=...) -> sdeweights.Prior
    likelihood     Likelihood() -> psdenets.models.likelihoods.Likelihood
    data set       load(root: Path) -> psdenets.data.Pool, (pixels, labels, class names) as uint8 and integer arrays, or
                   psdenets.data.tables.table_of(...) for rows of numbers

The values are strings, so `--help` can list the names without importing torch.
"""

HIDDEN_DRIFTS = {
    "strided": "psdenets.nn.hidden_drifts:strided",
    "3-1-3": "psdenets.nn.hidden_drifts:three_one_three",
    "3-3": "psdenets.nn.hidden_drifts:three_three",
    "pre-3": "psdenets.nn.hidden_drifts:pre_three",
    "pre-3-3": "psdenets.nn.hidden_drifts:pre_three_three",
    "1-1": "psdenets.nn.hidden_drifts:one_one",
    "gain-3": "psdenets.nn.hidden_drifts:GainedConv",
    "bumps": "psdenets.nn.hidden_drifts:Bumps",
}

PRIORS = {"ou": "sdeweights:OrnsteinUhlenbeck", "brownian": "psdenets.models.priors:brownian"}

OF_NUMBERS = ("gaussian", "laplace", "student-t", "cauchy")
LIKELIHOODS = {
    "categorical": "psdenets.models.likelihoods:Categorical",
    **{name: f"psdenets.models.regression:{name.replace('-', '_')}" for name in OF_NUMBERS},
}

_IMAGE_SETS = (
    "digits", "mnist", "fashion-mnist", "kmnist", "cifar10", "svhn", "omniglot",
)  # fmt: skip
FROM_PYTHON = ("arrays", "table", "numbers")  # images, rows with a class, rows with a number to predict
_NUMBERS = ("gap", "cos", "heteroscedastic", "bimodal", "diabetes")
REGRESSION_SETS = (*_NUMBERS, "csv", "numbers")
TABLES = (*REGRESSION_SETS, "table")
DATASETS = {
    **{name: f"psdenets.data.sets:{name.replace('-', '_')}" for name in _IMAGE_SETS},
    "imagefolder": "psdenets.data.folder:imagefolder",
    **{name: f"psdenets.data.tables:{name}" for name in _NUMBERS},
    "csv": "psdenets.data.table_files:csv",
    **dict.fromkeys(FROM_PYTHON, "psdenets.data.sets:arrays"),
}
