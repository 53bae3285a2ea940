"""Foundations of all packages: errors, files, devices, progress, settings and run folders."""
