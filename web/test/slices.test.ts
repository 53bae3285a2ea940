import assert from "node:assert/strict";
import { test } from "node:test";

import type { Triple, Volume } from "../src/nifti.ts";
import { axisOf, fillMiddle, middleOf, PLANES, sizeOf, sliceOf } from "../src/slices.ts";

const SHAPE: Triple = [3, 4, 5];

function scanOf(data: Int16Array<ArrayBuffer>): Volume {
  return { shape: SHAPE, spacing: [1, 1, 1], data, slope: 1, intercept: 0, isComplete: true };
}

/** Return the indices of the voxels of a slice, found by looking at every voxel. */
function indicesOf(plane: 0 | 1 | 2, position: number): number[] {
  const [x, y, z] = SHAPE;
  return Array.from({ length: x * y * z }, (_, index) => index).filter(
    (index) => [index % x, Math.floor(index / x) % y, Math.floor(index / (x * y))][axisOf(plane)] === position,
  );
}

const values = Int16Array.from({ length: 60 }, (_, index) => 500 * index - 9000);

test("a slice contains its voxels in their order", () => {
  for (const plane of PLANES) {
    for (let position = 0; position < SHAPE[axisOf(plane)]; position++) {
      const expected = indicesOf(plane, position).map((index) => values[index]!);
      assert.deepEqual([...sliceOf(scanOf(values), plane, position)], expected);
      assert.equal(expected.length, sizeOf(SHAPE, plane)[0] * sizeOf(SHAPE, plane)[1]);
    }
  }
});

test("only the middle slices are filled", () => {
  const middle = PLANES.map((plane) => indicesOf(plane, middleOf(SHAPE)[axisOf(plane)]));
  const scan = scanOf(new Int16Array(60));
  fillMiddle(scan, Int16Array.from(middle.flat(), (index) => values[index]!));
  const isFilled = new Set(middle.flat());
  assert.deepEqual([...scan.data], [...values].map((value, index) => (isFilled.has(index) ? value : 0)));
});
