/** The axial, coronal and sagittal slices of a scan. Pixels have the order of the voxels. */

import type { Triple, Volume, Voxels } from "./nifti.ts";

/** A plane in the numbering of NiiVue: 0 axial, 1 coronal, 2 sagittal. */
export type Plane = 0 | 1 | 2;
export const PLANES: readonly Plane[] = [0, 1, 2];

/** Return the axis of the volume that is perpendicular to a plane. */
export function axisOf(plane: Plane): 0 | 1 | 2 {
  return (2 - plane) as 0 | 1 | 2;
}

/** Return width and height of the slices of a plane. */
export function sizeOf([x, y, z]: Triple, plane: Plane): [number, number] {
  return plane === 0 ? [x, y] : plane === 1 ? [x, z] : [y, z];
}

/** Return the voxel in the middle. */
export function middleOf(shape: Triple): Triple {
  return shape.map((size) => Math.floor(size / 2)) as Triple;
}

/** Return a slice of a scan. */
export function sliceOf({ shape, data }: Volume, plane: Plane, index: number): Voxels {
  const [x, y, z] = shape;
  if (plane === 0) return data.subarray(index * x * y, (index + 1) * x * y);
  const [width, height] = sizeOf(shape, plane);
  const slice = data.slice(0, width * height);
  if (plane === 1) {
    for (let k = 0; k < z; k++) slice.set(data.subarray((k * y + index) * x, (k * y + index + 1) * x), k * x);
  } else {
    for (let row = 0; row < y * z; row++) slice[row] = data[row * x + index]!;
  }
  return slice;
}

/** Write the slices through the middle voxel, one after the other, into a scan. */
export function fillMiddle({ shape, data }: Volume, slices: Voxels): void {
  const [x, y, z] = shape;
  const [i, j, k] = middleOf(shape);
  const coronal = x * y;
  const sagittal = coronal + x * z;
  data.set(slices.subarray(0, coronal), k * x * y);
  for (let n = 0; n < z; n++) {
    data.set(slices.subarray(coronal + n * x, coronal + (n + 1) * x), (n * y + j) * x);
  }
  for (let row = 0; row < y * z; row++) data[row * x + i] = slices[sagittal + row]!;
}
