import assert from "node:assert/strict";
import { test } from "node:test";

import type { Point } from "../src/drawing.ts";
import { Edit, type Draft } from "../src/edit.ts";
import { interpolateMasks, interpolateSlices, signedDistance } from "../src/interpolation.ts";
import { randomNumbers } from "./random.ts";

function slowDistance(mask: Uint8Array, size: Point, spacing: Point): Float64Array {
  const half = Math.min(...spacing) / 2;
  return Float64Array.from(mask, (value, i) => {
    let nearest = Infinity;
    mask.forEach((other, k) => {
      if (other === value) return;
      const du = (i % size[0]) - (k % size[0]);
      const dv = Math.floor(i / size[0]) - Math.floor(k / size[0]);
      nearest = Math.min(nearest, Math.hypot(du * spacing[0], dv * spacing[1]));
    });
    return value === 1 ? half - nearest : nearest - half;
  });
}

test("signed distances equal those of a slow search", () => {
  const random = randomNumbers(3);
  for (const spacing of [
    [1, 1],
    [0.7, 2.5],
  ] as Point[]) {
    for (let round = 0; round < 10; round++) {
      const size: Point = [11, 9];
      const mask = Uint8Array.from({ length: 99 }, () => (random(4) === 0 ? 1 : 0));
      const fast = signedDistance(mask, size, spacing);
      slowDistance(mask, size, spacing).forEach((value, i) => assert.ok(Math.abs(value - fast[i]!) < 1e-9));
    }
  }
});

function disc(size: Point, center: Point, radius: number): Uint8Array {
  return Uint8Array.from({ length: size[0] * size[1] }, (_, i) =>
    Math.hypot((i % size[0]) - center[0], Math.floor(i / size[0]) - center[1]) <= radius ? 1 : 0,
  );
}

const area = (mask: Uint8Array): number => mask.reduce((sum, value) => sum + value, 0);

test("the ends of an interpolation are the given masks", () => {
  const size: Point = [20, 20];
  const [a, b] = [disc(size, [8, 8], 3), disc(size, [11, 10], 6)];
  assert.deepEqual(interpolateMasks(a, b, size, [1, 1], 0), a);
  assert.deepEqual(interpolateMasks(a, b, size, [1, 1], 1), b);
});

test("half way, a disc has half way center and radius", () => {
  const size: Point = [40, 40];
  const half = interpolateMasks(disc(size, [10, 10], 4), disc(size, [26, 26], 8), size, [1, 1], 0.5);
  const expected = disc(size, [18, 18], 6);
  const differing = half.reduce((sum, value, i) => sum + Math.abs(value - expected[i]!), 0);
  assert.ok(differing <= 0.1 * area(expected), `${differing} voxels differ`);
});

test("objects that do not overlap do not vanish", () => {
  const size: Point = [40, 20];
  assert.ok(area(interpolateMasks(disc(size, [6, 10], 4), disc(size, [32, 10], 4), size, [1, 1], 0.5)) >= 40);
});

test("slices between two slices are replaced along each axis", () => {
  for (const axis of [0, 1, 2] as const) {
    const draft: Draft = { labels: new Uint8Array(1000), shape: [10, 10, 10], spacing: [1, 1, 1] };
    const edit = new Edit(draft);
    const paint = (position: number, from: number, to: number, value: number): void => {
      for (let u = from; u <= to; u++)
        for (let v = from; v <= to; v++) {
          const voxel: [number, number, number] = [u, v, 0];
          voxel.splice(2, 1);
          voxel.splice(axis, 0, position);
          edit.set(...(voxel as [number, number, number]), value);
        }
    };
    paint(2, 2, 7, 1);
    paint(6, 2, 7, 1);
    paint(4, 0, 0, 1);
    paint(4, 9, 9, 2);
    assert.ok(interpolateSlices(draft, edit, axis, 6, 2, 1));
    const count = (value: number): number => draft.labels.filter((label) => label === value).length;
    assert.equal(count(1), 5 * 36);
    assert.equal(count(2), 1);
  }
});

test("a class that is missing on one slice is not interpolated", () => {
  const draft: Draft = { labels: new Uint8Array(125), shape: [5, 5, 5], spacing: [1, 1, 1] };
  const edit = new Edit(draft);
  edit.set(2, 2, 0, 1);
  assert.equal(interpolateSlices(draft, edit, 2, 0, 4, 1), false);
});
