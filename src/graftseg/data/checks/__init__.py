"""Checks of single cases, label maps, differences between cases, copies, and labeled against unlabeled scans."""
