"""The runs of docs/RESULTS.md: which there are, what is recorded of each, their targets, and the page."""
