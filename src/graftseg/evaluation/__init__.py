"""From label maps and references to scores, comparisons and verdicts."""
