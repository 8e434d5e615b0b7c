"""HMC over a small network: model, sampler and diagnostics."""
