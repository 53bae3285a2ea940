"""How fast a training step is on this machine, beside the usual way of running the same step."""
