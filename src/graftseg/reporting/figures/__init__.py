"""The figures of the paper, drawn for any run."""
