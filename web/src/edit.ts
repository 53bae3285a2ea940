/** One change of the draft: a stroke, a fill or an interpolation. */

import type { Triple } from "./nifti.ts";
import { runsOf, type Run } from "./runs.ts";

/** A finished change, as runs of the new and of the previous values. */
export interface Change {
  redo: Run[];
  undo: Run[];
}

/** A draft label map that can be edited voxel by voxel. */
export interface Draft {
  labels: Uint8Array<ArrayBuffer>;
  shape: Triple;
  spacing: Triple;
}

/** Writes voxels into a draft and remembers their previous values. */
export class Edit {
  readonly #draft: Draft;
  readonly #previous = new Map<number, number>();
  #low: Triple;
  #high: Triple;

  constructor(draft: Draft) {
    this.#draft = draft;
    [this.#low, this.#high] = emptyBox();
  }

  /** Give a voxel a value. Positions outside of the scan are ignored. */
  set(x: number, y: number, z: number, value: number): void {
    const { labels, shape } = this.#draft;
    if (x < 0 || y < 0 || z < 0 || x >= shape[0] || y >= shape[1] || z >= shape[2]) return;
    const index = x + shape[0] * (y + shape[1] * z);
    const previous = labels[index]!;
    if (previous === value) return;
    if (!this.#previous.has(index)) this.#previous.set(index, previous);
    labels[index] = value;
    growBox(this.#low, this.#high, [x, y, z]);
  }

  /** Return the box around the voxels set since the last call, or null if there are none. */
  takeBox(): [Triple, Triple] | null {
    const [low, high] = [this.#low, this.#high];
    [this.#low, this.#high] = emptyBox();
    return low[0] > high[0] ? null : [low, high];
  }

  /** Return the change, or null if no voxel has another value than before. */
  finish(): Change | null {
    const { labels } = this.#draft;
    const indices = Uint32Array.from(
      [...this.#previous].filter(([index, value]) => labels[index] !== value).map(([index]) => index),
    ).sort();
    if (indices.length === 0) return null;
    return {
      redo: runsOf(
        indices,
        Array.from(indices, (index) => labels[index]!),
      ),
      undo: runsOf(
        indices,
        Array.from(indices, (index) => this.#previous.get(index)!),
      ),
    };
  }
}

function emptyBox(): [Triple, Triple] {
  return [
    [Infinity, Infinity, Infinity],
    [-1, -1, -1],
  ];
}

function growBox(low: Triple, high: Triple, voxel: Triple): void {
  for (let axis = 0; axis < 3; axis++) {
    low[axis] = Math.min(low[axis]!, voxel[axis]!);
    high[axis] = Math.max(high[axis]!, voxel[axis]!);
  }
}

/** Return the box around the voxels of the runs. */
export function boxOfRuns(runs: readonly Run[], shape: Triple): [Triple, Triple] {
  const [low, high] = emptyBox();
  const [width, height] = shape;
  for (const { first, length } of runs) {
    const last = first + length - 1;
    const row = [Math.floor(first / width), Math.floor(last / width)] as const;
    const isOneRow = row[0] === row[1];
    const y = row.map((r) => r % height);
    const z = row.map((r) => Math.floor(r / height));
    const isOneSlice = z[0] === z[1];
    growBox(low, high, [isOneRow ? first % width : 0, isOneSlice ? y[0]! : 0, z[0]!]);
    growBox(low, high, [isOneRow ? last % width : width - 1, isOneSlice ? y[1]! : height - 1, z[1]!]);
  }
  return [low, high];
}
