"""From a recipe and a store to a run."""
