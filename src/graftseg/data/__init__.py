"""From scans to training batches: layouts, formats, checks, preparation, stores and augmentation."""
