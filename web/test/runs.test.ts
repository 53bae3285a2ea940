import assert from "node:assert/strict";
import { test } from "node:test";

import { applyRuns, decodeRuns, encodeRuns, runsOf } from "../src/runs.ts";

test("neighbors with the same value share a run", () => {
  assert.deepEqual(runsOf([2, 3, 4, 6, 7], [1, 1, 2, 2, 2]), [
    { first: 2, length: 2, value: 1 },
    { first: 4, length: 1, value: 2 },
    { first: 6, length: 2, value: 2 },
  ]);
});

test("a run is stored in 9 bytes, little endian", () => {
  const bytes = encodeRuns([{ first: 0x01020304, length: 258, value: 7 }]);
  assert.deepEqual([...bytes], [4, 3, 2, 1, 2, 1, 0, 0, 7]);
  assert.deepEqual(decodeRuns(bytes), [{ first: 0x01020304, length: 258, value: 7 }]);
});

test("indices above 2 ** 31 are kept", () => {
  const runs = [{ first: 3_000_000_000, length: 1, value: 1 }];
  assert.deepEqual(decodeRuns(encodeRuns(runs)), runs);
});

test("incomplete strokes are refused", () => {
  assert.throws(() => decodeRuns(new Uint8Array(10)), /incomplete/);
});

test("runs are applied in their order", () => {
  const labels = new Uint8Array(6);
  applyRuns(labels, [
    { first: 1, length: 4, value: 2 },
    { first: 3, length: 1, value: 1 },
  ]);
  assert.deepEqual([...labels], [0, 2, 2, 1, 2, 0]);
});
