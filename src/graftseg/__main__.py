"""``python -m graftseg`` is the command line."""

from graftseg.cli.app import main

main()
