import assert from "node:assert/strict";
import { test } from "node:test";

import { Edit, boxOfRuns, type Draft } from "../src/edit.ts";
import { History } from "../src/history.ts";
import { applyRuns } from "../src/runs.ts";
import { randomNumbers } from "./random.ts";

function emptyDraft(): Draft {
  return { labels: new Uint8Array(5 * 4 * 3), shape: [5, 4, 3], spacing: [1, 1, 1] };
}

test("undo and redo go through all states in both directions", () => {
  const random = randomNumbers(2);
  const draft = emptyDraft();
  const history = new History();
  const states = [draft.labels.slice()];
  for (let i = 0; i < 20; i++) {
    const edit = new Edit(draft);
    for (let k = 0; k < 6; k++) edit.set(random(7) - 1, random(6) - 1, random(5) - 1, random(3));
    const change = edit.finish();
    if (change === null) continue;
    history.add(change);
    states.push(draft.labels.slice());
  }
  for (let i = states.length - 2; i >= 0; i--) {
    applyRuns(draft.labels, history.undo()!.undo);
    assert.deepEqual(draft.labels, states[i]);
  }
  assert.equal(history.undo(), null);
  for (let i = 1; i < states.length; i++) {
    applyRuns(draft.labels, history.redo()!.redo);
    assert.deepEqual(draft.labels, states[i]);
  }
  assert.equal(history.redo(), null);
});

test("a new change replaces the undone ones", () => {
  const history = new History();
  const change = { redo: [], undo: [] };
  history.add(change);
  history.undo();
  assert.ok(history.canRedo);
  history.add(change);
  assert.ok(!history.canRedo);
});

test("an edit that ends where it began is no change", () => {
  const edit = new Edit(emptyDraft());
  edit.set(1, 1, 1, 2);
  edit.set(1, 1, 1, 0);
  assert.equal(edit.finish(), null);
});

test("an edit reports the box of its voxels since the last call", () => {
  const edit = new Edit(emptyDraft());
  edit.set(1, 2, 0, 1);
  edit.set(3, 0, 2, 1);
  edit.set(9, 0, 0, 1);
  assert.deepEqual(edit.takeBox(), [
    [1, 0, 0],
    [3, 2, 2],
  ]);
  assert.equal(edit.takeBox(), null);
});

test("the box of runs contains all their voxels", () => {
  const shape: [number, number, number] = [5, 4, 3];
  assert.deepEqual(boxOfRuns([{ first: 6, length: 2, value: 1 }], shape), [
    [1, 1, 0],
    [2, 1, 0],
  ]);
  assert.deepEqual(boxOfRuns([{ first: 3, length: 4, value: 1 }], shape), [
    [0, 0, 0],
    [4, 1, 0],
  ]);
  assert.deepEqual(boxOfRuns([{ first: 18, length: 6, value: 1 }], shape), [
    [0, 0, 0],
    [4, 3, 1],
  ]);
});
