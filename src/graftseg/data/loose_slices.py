"""DICOM slices that lie directly in a folder of cases, where each file would become a scan with one slice."""

from collections.abc import Collection, Sequence
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import and_more
from graftseg.data.formats.dicom import series_of_slices
from graftseg.data.scans import is_dicom_file, scan_stem

NAMED_SERIES = 3
"""At most this many series are named in an error."""


def refuse_loose_slices(folder: Path, scans: Sequence[Path], labels: Collection[str]) -> None:
    """Raise a UserError if a folder directly contains several slices of a DICOM series.

    The slices are not grouped into cases, because neither the slices nor their headers contain the name of the case.
    If a slice has its own label map (``labels`` are their names), each slice is a valid case.
    """
    files = [path for path in scans if is_dicom_file(path)]
    if len(files) < 2 or any(scan_stem(path) in labels for path in files):
        return
    series = series_of_slices(files)
    if not series:
        return
    count = sum(map(len, series))
    named = [and_more(slices[0].name, len(slices)) for slices in series[:NAMED_SERIES]]
    listed = ", ".join(named) + (", ..." if len(series) > NAMED_SERIES else "")
    finding = f"{count} DICOM slices of {len(series)} series lie directly in the folder ({listed})"
    remedy = f"move the slices of each series into a subfolder with the name of its case, such as {folder.name}/case_01"
    raise UserError(Code.DICOM_SERIES, folder, finding, remedy)
