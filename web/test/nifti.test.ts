import assert from "node:assert/strict";
import { test } from "node:test";

import { readLabels, readNifti, writeNifti } from "../src/nifti.ts";

test("a written volume is read again without a change", () => {
  const data = Uint8Array.from({ length: 24 }, (_, i) => i);
  const volume = readNifti(writeNifti([2, 3, 4], [0.5, 1, 2.5], data));
  assert.deepEqual(volume.shape, [2, 3, 4]);
  assert.deepEqual(volume.spacing, [0.5, 1, 2.5]);
  assert.deepEqual([...volume.data], [...data]);
  assert.deepEqual([volume.slope, volume.intercept], [1, 0]);
});

test("label maps must have the shape of the scan", () => {
  const bytes = writeNifti([2, 3, 4], [1, 1, 1], new Uint8Array(24));
  assert.equal(readLabels(bytes, [2, 3, 4]).length, 24);
  assert.throws(() => readLabels(bytes, [4, 3, 2]), /shape/);
});

test("other files are refused", () => {
  assert.throws(() => readNifti(new ArrayBuffer(400)), /not a NIfTI/);
});

test("all voxel types of the server are read", () => {
  const types: [number, number, object][] = [
    [2, 1, Uint8Array],
    [4, 2, Int16Array],
    [512, 2, Uint16Array],
    [16, 4, Float32Array],
  ];
  for (const [code, size, type] of types) {
    const bytes = writeNifti([2, 1, 1], [1, 1, 1], new Uint8Array(2 * size));
    new DataView(bytes).setInt16(70, code, true);
    assert.equal(readNifti(bytes).data.constructor, type);
    assert.equal(readNifti(bytes).data.length, 2);
  }
});
