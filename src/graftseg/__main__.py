"""``python -m graftseg`` is the command line."""

from graftseg.cli import main

main()
