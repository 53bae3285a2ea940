"""What a check looks for, one idea in each file: single cases, labels, the set, copies, labeled against unlabeled."""
