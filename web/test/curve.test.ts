import assert from "node:assert/strict";
import { test } from "node:test";

import { extended, short, thin, ticks, type CurvePoint } from "../src/curve.ts";
import { duration } from "../src/dom.ts";
import { curveOrder, curveTitle } from "../src/live_page.ts";
import { coarseGrid } from "../src/rendering_grid.ts";

test("axes have round numbers", () => {
  assert.deepEqual(ticks(0, 1, 4), [0, 0.5, 1]);
  assert.deepEqual(ticks(0, 400, 5), [0, 100, 200, 300, 400]);
  assert.deepEqual(ticks(0.13, 0.38, 5), [0.15, 0.2, 0.25, 0.3, 0.35]);
  assert.deepEqual(ticks(2, 2, 4), [2]);
});

test("long curves are thinned to means", () => {
  const points = Array.from({ length: 1000 }, (_, i) => [i, i % 2] as CurvePoint);
  const few = thin(points, 100);
  assert.equal(few.length, 100);
  assert.ok(few.every(([, value]) => value === 0.5));
  assert.equal(few.at(-1)![0], 999);
});

test("numbers and durations are short", () => {
  assert.deepEqual([0, 0.1234, 1234, 1e-4, 2.5e6].map(short), ["0", "0.123", "1230", "1.0e-4", "2.5e6"]);
  assert.deepEqual([5, 65, 3700].map(duration), ["5 s", "1 min 5 s", "1 h 1 min"]);
});

test("curves are ordered and named", () => {
  const names = ["lr", "terms/in", "validation/dice", "total"];
  assert.deepEqual(
    names.sort((a, b) => curveOrder(a) - curveOrder(b)),
    ["total", "validation/dice", "terms/in", "lr"],
  );
  assert.deepEqual(["total", "terms/in"].map(curveTitle), ["Loss", "Loss term: in"]);
});

test("the grid of the rendering is coarse and covers the scan", () => {
  const grid = coarseGrid([512, 512, 300], [0.7, 0.7, 1]);
  assert.deepEqual(grid.shape, [128, 128, 100]);
  assert.ok(Math.max(...grid.indices.subarray(-10)) < 512 * 512 * 300);
  assert.deepEqual(coarseGrid([20, 30, 1], [1, 1, 1]).shape, [20, 30, 1]);
});

test("a resumed training replaces the steps that it repeats", () => {
  const points: CurvePoint[] = [
    [1, 0.1],
    [2, 0.2],
    [3, 0.3],
  ];
  assert.deepEqual(extended(points, [[4, 0.4]]), [...points, [4, 0.4]]);
  assert.deepEqual(extended(points, [[2, 0.5]]), [
    [1, 0.1],
    [2, 0.5],
  ]);
  assert.deepEqual(extended(points, []), points);
});
