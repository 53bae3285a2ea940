"""Readers and writers of scan files, one module per format. No other package opens scan files.

Readers check all content before use. They return voxels and geometry only; patient data in a header is dropped.
"""
