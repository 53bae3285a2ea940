"""Which voxels are neighbours: those that differ by at most one in at most so many axes."""

NEIGHBOURS = {(2, 1): 4, (2, 2): 8, (3, 1): 6, (3, 2): 18, (3, 3): 26}


def resolve_connectivity(axes: int, connectivity: int | None) -> int:
    """The connectivity, by default the number of axes; refused where label maps of that many axes have no such."""
    chosen = axes if connectivity is None else connectivity
    if (axes, chosen) not in NEIGHBOURS:
        raise ValueError(f"a connectivity of {chosen} does not fit label maps of {axes} axes")
    return chosen
