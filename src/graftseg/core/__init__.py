"""What everything stands on: errors, files, devices, progress, settings, and the folders of runs."""
