"""Ranking of unlabeled scans for annotation."""
