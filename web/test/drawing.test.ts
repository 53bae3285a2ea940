import assert from "node:assert/strict";
import { test } from "node:test";

import {
  brushOffsets,
  drawLine,
  fillPolygon,
  fillRegion,
  inVolume,
  linePoints,
  onPlane,
  type Point,
  type Slice,
} from "../src/drawing.ts";
import { Edit, type Draft } from "../src/edit.ts";

const SLICE: Slice = { axis: 2, position: 1 };

function draftOf(width = 9, height = 7, depth = 3): Draft {
  return { labels: new Uint8Array(width * height * depth), shape: [width, height, depth], spacing: [1, 1, 1] };
}

function rows(draft: Draft, position: number): string[] {
  const [width, height] = draft.shape;
  return Array.from({ length: height }, (_, y) => {
    const start = width * (y + height * position);
    return [...draft.labels.slice(start, start + width)].map((value) => (value === 0 ? "." : String(value))).join("");
  });
}

test("brushes are round in millimeters", () => {
  assert.deepEqual(brushOffsets(1, [1, 1]), [[0, 0]]);
  assert.equal(brushOffsets(3, [1, 1]).length, 5);
  assert.equal(brushOffsets(5, [1, 1]).length, 21);
  assert.deepEqual(
    brushOffsets(5, [1, 4]).map(([, v]) => v),
    [0, 0, 0, 0, 0],
  );
});

test("lines have no gaps and contain both ends", () => {
  for (const end of [
    [5, 2],
    [-3, 7],
    [0, 0],
    [4, -4],
  ] as Point[]) {
    const points = linePoints([0, 0], end);
    assert.deepEqual(points[0], [0, 0]);
    assert.deepEqual(
      points.at(-1)!.map((value) => value + 0),
      end,
    );
    for (let i = 1; i < points.length; i++) {
      assert.ok(
        Math.max(Math.abs(points[i]![0] - points[i - 1]![0]), Math.abs(points[i]![1] - points[i - 1]![1])) === 1,
      );
    }
  }
});

test("a stroke changes one slice only", () => {
  const draft = draftOf();
  drawLine(
    new Edit(draft),
    SLICE,
    [1, 1],
    [6, 1],
    [
      [0, 0],
      [0, 1],
    ],
    2,
  );
  assert.deepEqual(rows(draft, 1).slice(0, 4), [".........", ".222222..", ".222222..", "........."]);
  assert.ok(!rows(draft, 0).join("").includes("2") && !rows(draft, 2).join("").includes("2"));
});

test("points of all planes map to voxels and back", () => {
  for (const axis of [0, 1, 2] as const) {
    const voxel = inVolume([3, 4], { axis, position: 5 });
    assert.equal(voxel[axis], 5);
    assert.deepEqual(onPlane(voxel, axis), [3, 4]);
  }
});

test("a closed outline is filled", () => {
  const draft = draftOf();
  fillPolygon(
    new Edit(draft),
    SLICE,
    [
      [1, 1],
      [6, 1],
      [6, 5],
      [1, 5],
    ],
    1,
  );
  assert.deepEqual(rows(draft, 1), [
    ".........",
    ".111111..",
    ".111111..",
    ".111111..",
    ".111111..",
    ".111111..",
    ".........",
  ]);
});

test("a concave outline keeps its gap", () => {
  const draft = draftOf();
  fillPolygon(
    new Edit(draft),
    SLICE,
    [
      [0, 0],
      [8, 0],
      [8, 6],
      [6, 6],
      [6, 2],
      [2, 2],
      [2, 6],
      [0, 6],
    ],
    1,
  );
  assert.deepEqual(rows(draft, 1), [
    "111111111",
    "111111111",
    "111111111",
    "111...111",
    "111...111",
    "111...111",
    "111...111",
  ]);
});

test("an enclosed region is filled, an open one is not", () => {
  const draft = draftOf();
  const edit = new Edit(draft);
  const ring: Point[] = [
    [2, 1],
    [6, 1],
    [6, 5],
    [2, 5],
  ];
  ring.forEach((point, i) => drawLine(edit, SLICE, point, ring[(i + 1) % 4]!, [[0, 0]], 1));
  assert.equal(fillRegion(draft, edit, SLICE, [0, 0], 2), false);
  assert.equal(fillRegion(draft, edit, SLICE, [4, 3], 2), true);
  assert.deepEqual(rows(draft, 1), [
    ".........",
    "..11111..",
    "..12221..",
    "..12221..",
    "..12221..",
    "..11111..",
    ".........",
  ]);
});
