"""The formats of scan files, one a module: the only package that opens scans.

A scan comes from elsewhere, so nothing in it is believed before it is checked. Only voxels and geometry are kept; what
a header says about a person is never passed on.
"""
