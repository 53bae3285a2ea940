"""Readers and writers of scan files, one module per format. No other package opens scan files.

Readers check all content before use. They return only voxels and geometry, and drop patient data in headers.
"""
