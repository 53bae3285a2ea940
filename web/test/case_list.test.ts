import assert from "node:assert/strict";
import { test } from "node:test";

import type { CaseSummary } from "../src/api.ts";
import { filterCases, sortCases } from "../src/case_list.ts";

function summary(name: string, dice: number | null, uncertainty: number | null, rank: number | null): CaseSummary {
  return {
    id: 0,
    name,
    split: name.startsWith("t") ? "test" : "labeled",
    dice,
    uncertainty,
    rank,
    reasons: [],
    layers: [],
    state: "open",
    has_draft: false,
  };
}

const CASES = [
  summary("t10", 0.5, 0.2, 2),
  summary("t9", null, 0.9, null),
  summary("b", 0.3, null, 1),
  summary("a", 0.5, 0.2, 3),
];
const names = (cases: CaseSummary[]): string[] => cases.map(({ name }) => name);

test("cases without a value come last", () => {
  assert.deepEqual(names(sortCases(CASES, "dice")), ["b", "a", "t10", "t9"]);
  assert.deepEqual(names(sortCases(CASES, "uncertainty")), ["t9", "a", "t10", "b"]);
  assert.deepEqual(names(sortCases(CASES, "rank")), ["b", "t10", "a", "t9"]);
});

test("numbers in names are compared as numbers", () => {
  assert.deepEqual(names(sortCases(CASES, "name")), ["a", "b", "t9", "t10"]);
});

test("all words of the filter must occur", () => {
  assert.deepEqual(names(filterCases(CASES, "TEST 1")), ["t10"]);
  assert.equal(filterCases(CASES, " ").length, 4);
});
