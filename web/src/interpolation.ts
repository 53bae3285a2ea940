/** Interpolation of a class between two slices by signed distances. */

import { indexOf, inVolume, planeAxes, type Point, type Slice } from "./drawing.ts";
import type { Draft, Edit } from "./edit.ts";

const FAR = 1e20;

/** Return squared distances of samples on a line to the nearest sample with cost 0 (Felzenszwalb and others 2012). */
function distancesOnLine(costs: Float64Array, spacing: number): Float64Array {
  const count = costs.length;
  const square = spacing * spacing;
  const sites = new Int32Array(count);
  const borders = new Float64Array(count + 1).fill(Infinity);
  borders[0] = -Infinity;
  let top = 0;
  for (let q = 1; q < count; q++) {
    let border = crossing(costs, square, q, sites[top]!);
    while (border <= borders[top]!) border = crossing(costs, square, q, sites[--top]!);
    sites[++top] = q;
    borders[top] = border;
    borders[top + 1] = Infinity;
  }
  const result = new Float64Array(count);
  for (let q = 0, k = 0; q < count; q++) {
    while (borders[k + 1]! < q) k++;
    result[q] = square * (q - sites[k]!) ** 2 + costs[sites[k]!]!;
  }
  return result;
}

function crossing(costs: Float64Array, square: number, q: number, p: number): number {
  return (costs[q]! + square * q * q - (costs[p]! + square * p * p)) / (2 * square * (q - p));
}

/** Return the distance of each pixel of a slice to the nearest site. */
function distancesTo(isSite: (index: number) => boolean, size: Point, spacing: Point): Float64Array {
  const [width, height] = size;
  const grid = Float64Array.from({ length: width * height }, (_, i) => (isSite(i) ? 0 : FAR));
  for (let v = 0; v < height; v++) {
    grid.set(distancesOnLine(grid.slice(v * width, (v + 1) * width), spacing[0]), v * width);
  }
  for (let u = 0; u < width; u++) {
    const column = distancesOnLine(
      Float64Array.from({ length: height }, (_, v) => grid[u + width * v]!),
      spacing[1],
    );
    column.forEach((value, v) => (grid[u + width * v] = value));
  }
  return grid.map(Math.sqrt);
}

/** Return distances to the border of a mask, negative inside. The border is half way between neighbors. */
export function signedDistance(mask: Uint8Array, size: Point, spacing: Point): Float64Array {
  const outside = distancesTo((i) => mask[i] === 1, size, spacing);
  const inside = distancesTo((i) => mask[i] === 0, size, spacing);
  const half = Math.min(...spacing) / 2;
  return outside.map((distance, i) => (mask[i] === 1 ? half - inside[i]! : distance - half));
}

function centroid(mask: Uint8Array, size: Point): Point {
  let [u, v, count] = [0, 0, 0];
  mask.forEach((value, i) => {
    if (value === 0) return;
    u += i % size[0];
    v += Math.floor(i / size[0]);
    count++;
  });
  return [u / count, v / count];
}

/**
 * Return the mask a fraction `t` of the way from mask a to mask b.
 *
 * Both masks are first moved to the interpolated center. Otherwise, an object would vanish half way if its outlines in
 * the two slices do not overlap.
 */
export function interpolateMasks(a: Uint8Array, b: Uint8Array, size: Point, spacing: Point, t: number): Uint8Array {
  return maskBetween(prepare(a, size, spacing), prepare(b, size, spacing), size, t);
}

/** The signed distances and the center of a mask. */
interface Prepared {
  distances: Float64Array;
  center: Point;
}

function prepare(mask: Uint8Array, size: Point, spacing: Point): Prepared {
  return { distances: signedDistance(mask, size, spacing), center: centroid(mask, size) };
}

function maskBetween(a: Prepared, b: Prepared, size: Point, t: number): Uint8Array {
  const center = [0, 1].map((i) => (1 - t) * a.center[i]! + t * b.center[i]!) as Point;
  const at = ({ distances, center: own }: Prepared, u: number, v: number): number => {
    const x = Math.min(size[0] - 1, Math.max(0, Math.round(u + own[0] - center[0])));
    const y = Math.min(size[1] - 1, Math.max(0, Math.round(v + own[1] - center[1])));
    return distances[x + size[0] * y]!;
  };
  return Uint8Array.from({ length: size[0] * size[1] }, (_, i) => {
    const [u, v] = [i % size[0], Math.floor(i / size[0])];
    return (1 - t) * at(a, u, v) + t * at(b, u, v) < 0 ? 1 : 0;
  });
}

/** Return the voxels of a class on a slice. */
function maskOf(draft: Draft, slice: Slice, value: number): Uint8Array {
  const [u, v] = planeAxes(slice.axis);
  const width = draft.shape[u];
  return Uint8Array.from({ length: width * draft.shape[v] }, (_, i) =>
    draft.labels[indexOf(draft.shape, inVolume([i % width, Math.floor(i / width)], slice))] === value ? 1 : 0,
  );
}

/**
 * Replace a class on all slices between two slices by its interpolation. Return false if one of them lacks the class.
 *
 * Voxels of the class outside of the interpolated shape become background. Other classes change only inside of it.
 */
export function interpolateSlices(
  draft: Draft,
  edit: Edit,
  axis: 0 | 1 | 2,
  from: number,
  to: number,
  value: number,
): boolean {
  const [low, high] = [Math.min(from, to), Math.max(from, to)];
  const [u, v] = planeAxes(axis);
  const size: Point = [draft.shape[u], draft.shape[v]];
  const spacing: Point = [draft.spacing[u], draft.spacing[v]];
  const masks = [low, high].map((position) => maskOf(draft, { axis, position }, value));
  if (masks.some((mask) => !mask.includes(1))) return false;
  const [a, b] = masks.map((mask) => prepare(mask, size, spacing)) as [Prepared, Prepared];
  for (let position = low + 1; position < high; position++) {
    const mask = maskBetween(a, b, size, (position - low) / (high - low));
    const current = maskOf(draft, { axis, position }, value);
    mask.forEach((isInside, i) => {
      if (isInside === current[i]) return;
      edit.set(...inVolume([i % size[0], Math.floor(i / size[0])], { axis, position }), isInside ? value : 0);
    });
  }
  return true;
}
