"""Checks of single cases and label maps, search for duplicate scans, and comparison of cases and of splits."""
