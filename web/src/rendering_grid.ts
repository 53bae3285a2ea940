/** The coarse grid of the 3-D rendering. */

import type { Triple } from "./nifti.ts";

/** Longest side of the rendered volume in voxels. More would be slow without a GPU. */
const LONGEST_SIDE = 128;

/** A coarse grid over the region of a volume. */
export interface CoarseGrid {
  shape: Triple;
  spacing: Triple;
  /** The index in the full volume of each voxel of the coarse one. */
  indices: Uint32Array;
}

/** Return a coarser grid over the same region. */
export function coarseGrid(shape: Triple, spacing: Triple): CoarseGrid {
  const step = shape.map((size, axis) => {
    const fine = Math.min(...spacing);
    const longest = Math.max(...shape.map((count, a) => count * (spacing[a]! / fine)));
    return Math.max(1, Math.min(size, Math.round((longest / LONGEST_SIDE) * (fine / spacing[axis]!))));
  });
  const small = shape.map((size, axis) => Math.ceil(size / step[axis]!)) as Triple;
  const indices = new Uint32Array(small[0] * small[1] * small[2]);
  const at = (i: number, axis: 0 | 1 | 2): number => Math.min(shape[axis] - 1, i * step[axis]! + (step[axis]! >> 1));
  let next = 0;
  for (let z = 0; z < small[2]; z++) {
    for (let y = 0; y < small[1]; y++) {
      for (let x = 0; x < small[0]; x++) indices[next++] = at(x, 0) + shape[0] * (at(y, 1) + shape[1] * at(z, 2));
    }
  }
  return { shape: small, spacing: spacing.map((size, axis) => size * step[axis]!) as Triple, indices };
}
