"""Scores of label maps against references, comparisons of runs, and verdicts."""
