"""Readers and writers of scan files, one module per format. Only ``benchmarks.h5`` also opens scan files.

Readers check all content before use. They return voxels, geometry and guesses, and drop patient data in headers.
"""
