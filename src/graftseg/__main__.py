"""Run the command line with ``python -m graftseg``."""

from graftseg.cli.app import main

main()
