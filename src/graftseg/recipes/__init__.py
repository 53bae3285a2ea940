"""Recipes: all settings of a run, and the files that come with the package."""
