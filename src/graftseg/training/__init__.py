"""Training: from a recipe and a store to a run folder."""
