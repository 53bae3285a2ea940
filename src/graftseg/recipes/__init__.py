"""Recipes: all settings of a training, and the files that come with the package."""
