"""The paper's tables: runs over seeds, records, sweeps, and the speed of a step."""
