import assert from "node:assert/strict";
import { test } from "node:test";

import { HEADER_BYTES, type Triple, type Volume } from "../src/nifti.ts";
import { isStreamed, receive } from "../src/scan_stream.ts";
import { isUnused } from "../src/unused_shaders.ts";
import type { CaseDetails } from "../src/api.ts";

function scanOf(shape: Triple): Volume {
  return {
    shape,
    spacing: [1, 1, 1],
    data: new Int16Array(shape[0] * shape[1] * shape[2]),
    slope: 1,
    intercept: 0,
    isComplete: false,
  };
}

function streamOf(bytes: Uint8Array, part: number): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (let first = 0; first < bytes.length; first += part) controller.enqueue(bytes.slice(first, first + part));
      controller.close();
    },
  });
}

function fileOf(values: Int16Array): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + values.byteLength);
  bytes.set(new Uint8Array(values.buffer), HEADER_BYTES);
  return bytes;
}

test("a scan is received in parts of any size", async () => {
  const values = Int16Array.from({ length: 3 * 4 * 5 }, (_, i) => i * 500 - 9000);
  for (const part of [1, 7, 351, 352, 353, 400, 10000]) {
    const scan = scanOf([3, 4, 5]);
    const shown: number[] = [];
    await receive(scan, streamOf(fileOf(values), part), (loaded) => shown.push(loaded));
    assert.deepEqual(scan.data, values);
    assert.deepEqual(shown, [5]);
    assert.equal(scan.isComplete, true);
  }
});

test("large scans are shown in groups of slices", async () => {
  const scan = scanOf([1024, 1024, 20]);
  const shown: number[] = [];
  const bytes = fileOf(new Int16Array(scan.data.length).fill(3));
  await receive(scan, streamOf(bytes, 2 ** 20), (loaded) => shown.push(loaded));
  assert.deepEqual(shown, [8, 16, 20]);
  assert.equal(
    scan.data.every((value) => value === 3),
    true,
  );
});

test("a stream that ends too early is an error", async () => {
  const scan = scanOf([3, 4, 5]);
  await assert.rejects(
    receive(scan, streamOf(fileOf(new Int16Array(59)), 100), () => undefined),
    /completely/,
  );
  assert.equal(scan.isComplete, false);
});

test("only large scans are streamed", () => {
  const details = (size: number): CaseDetails => ({ shape: [size, size, size], voxel_type: "int16" }) as CaseDetails;
  assert.deepEqual([isStreamed(details(128)), isStreamed(details(256))], [false, true]);
});

test("shaders of volumes and meshes are unused", () => {
  assert.deepEqual(["uniform highp isampler3D a;", "in vec4 vClr;", "uniform sampler2D font;"].map(isUnused), [
    true,
    true,
    false,
  ]);
});
