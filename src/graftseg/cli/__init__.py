"""The command line: a table from verb to the function that Python users call."""
