"""Which unlabeled scans to annotate next."""
