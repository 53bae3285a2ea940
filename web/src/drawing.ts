/** Drawing tools that set voxels on one slice of the draft. */

import type { Draft, Edit } from "./edit.ts";
import type { Triple } from "./nifti.ts";

/** A slice: the axis perpendicular to it and its position along this axis. */
export interface Slice {
  axis: 0 | 1 | 2;
  position: number;
}

export type Point = [number, number];

/** Return the two axes of a slice. */
export function planeAxes(axis: 0 | 1 | 2): [0 | 1 | 2, 0 | 1 | 2] {
  if (axis === 0) return [1, 2];
  return axis === 1 ? [0, 2] : [0, 1];
}

/** Return the two coordinates of a voxel on its slice. */
export function onPlane(voxel: Triple, axis: 0 | 1 | 2): Point {
  const [u, v] = planeAxes(axis);
  return [voxel[u], voxel[v]];
}

/** Return the voxel at a point of a slice. */
export function inVolume(point: Point, slice: Slice): Triple {
  const [u, v] = planeAxes(slice.axis);
  const voxel: Triple = [0, 0, 0];
  voxel[u] = point[0];
  voxel[v] = point[1];
  voxel[slice.axis] = slice.position;
  return voxel;
}

/**
 * Return the offsets of the voxels in a brush, a disc that is round in millimeters.
 *
 * The diameter is in units of the smaller voxel side. A diameter of 1 is one voxel.
 */
export function brushOffsets(diameter: number, sides: Point): Point[] {
  const side = Math.min(...sides);
  const radius = ((diameter - 1) / 2 + 0.25) * side;
  const reach = sides.map((s) => Math.floor(radius / s)) as Point;
  const offsets: Point[] = [];
  for (let v = 0 - reach[1]; v <= reach[1]; v++) {
    for (let u = 0 - reach[0]; u <= reach[0]; u++) {
      if (Math.hypot(u * sides[0], v * sides[1]) <= radius) offsets.push([u, v]);
    }
  }
  return offsets;
}

/** Return the points of a line from a to b, without gaps, including both ends. */
export function linePoints(a: Point, b: Point): Point[] {
  const steps = Math.max(Math.abs(b[0] - a[0]), Math.abs(b[1] - a[1]));
  if (steps === 0) return [a];
  return Array.from({ length: steps + 1 }, (_, i) => [
    Math.round(a[0] + ((b[0] - a[0]) * i) / steps),
    Math.round(a[1] + ((b[1] - a[1]) * i) / steps),
  ]);
}

/** Draw a line with a brush. */
export function drawLine(edit: Edit, slice: Slice, a: Point, b: Point, brush: readonly Point[], value: number): void {
  for (const [u, v] of linePoints(a, b)) {
    for (const [du, dv] of brush) edit.set(...inVolume([u + du, v + dv], slice), value);
  }
}

/** Fill the polygon with these corners, including its outline. */
export function fillPolygon(edit: Edit, slice: Slice, corners: readonly Point[], value: number): void {
  if (corners.length === 0) return;
  const heights = corners.map(([, v]) => v);
  for (let v = Math.min(...heights); v <= Math.max(...heights); v++) {
    const crossings = crossingsAt(corners, v);
    for (let i = 0; i + 1 < crossings.length; i += 2) {
      for (let u = Math.ceil(crossings[i]!); u <= crossings[i + 1]!; u++) edit.set(...inVolume([u, v], slice), value);
    }
  }
  corners.forEach((corner, i) => drawLine(edit, slice, corner, corners[(i + 1) % corners.length]!, [[0, 0]], value));
}

/** Return where the sides of a polygon cross row v. */
function crossingsAt(corners: readonly Point[], v: number): number[] {
  const crossings: number[] = [];
  corners.forEach(([u0, v0], i) => {
    const [u1, v1] = corners[(i + 1) % corners.length]!;
    if (v0 <= v !== v1 <= v) crossings.push(u0 + ((v - v0) / (v1 - v0)) * (u1 - u0));
  });
  return crossings.sort((a, b) => a - b);
}

/**
 * Fill the region of equal labels around a point of a slice (4 neighbors). Return true if it was filled.
 *
 * A background region that reaches the border of the slice is not enclosed and stays as it is.
 */
export function fillRegion(draft: Draft, edit: Edit, slice: Slice, start: Point, value: number): boolean {
  const region = regionAt(draft, slice, start);
  const [u, v] = planeAxes(slice.axis);
  const isBackground = draft.labels[indexOf(draft.shape, inVolume(start, slice))] === 0;
  const isOpen = region.some(([a, b]) => a === 0 || b === 0 || a === draft.shape[u] - 1 || b === draft.shape[v] - 1);
  if (isBackground && isOpen) return false;
  for (const point of region) edit.set(...inVolume(point, slice), value);
  return true;
}

/** Return the points of equal label that are connected with a point of a slice. */
function regionAt(draft: Draft, slice: Slice, start: Point): Point[] {
  const { labels, shape } = draft;
  const [u, v] = planeAxes(slice.axis);
  const target = labels[indexOf(shape, inVolume(start, slice))];
  const seen = new Uint8Array(shape[u] * shape[v]);
  const region: Point[] = [];
  const stack: Point[] = [start];
  while (stack.length > 0) {
    const [a, b] = stack.pop()!;
    if (a < 0 || b < 0 || a >= shape[u] || b >= shape[v] || seen[a + shape[u] * b]) continue;
    if (labels[indexOf(shape, inVolume([a, b], slice))] !== target) continue;
    seen[a + shape[u] * b] = 1;
    region.push([a, b]);
    stack.push([a + 1, b], [a - 1, b], [a, b + 1], [a, b - 1]);
  }
  return region;
}

/** Return the index of a voxel in the labels. */
export function indexOf(shape: Triple, voxel: Triple): number {
  return voxel[0] + shape[0] * (voxel[1] + shape[1] * voxel[2]);
}
