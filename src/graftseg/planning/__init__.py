"""Planning: from a data set to a recipe that fits the scans and a device, with a reason for every value."""
