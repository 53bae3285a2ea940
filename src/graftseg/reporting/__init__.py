"""Self-contained HTML pages about runs, folds and data sets, and charts of comparisons."""
