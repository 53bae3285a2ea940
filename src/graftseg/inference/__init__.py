"""Prediction of scans with a trained run, export to other programs, and ranking of unlabeled scans."""
