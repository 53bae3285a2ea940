"""Experiments over many runs: seeds, records, the paper's tables, sweeps, and the speed of a step."""
