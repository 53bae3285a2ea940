"""Viewer and annotation tool in the browser, served from this machine."""
