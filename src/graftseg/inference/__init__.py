"""From a run and scans to label maps."""
