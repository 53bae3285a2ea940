"""Checks of cases, label maps and duplicate scans, and comparisons of all cases and of labeled with unlabeled cases."""
