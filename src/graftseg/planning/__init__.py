"""Planning: choose a recipe that fits a data set and a device, with a reason for every value."""
