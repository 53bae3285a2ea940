import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, caseInAddress } from "../src/address.ts";
import type { CaseSummary } from "../src/api.ts";

const CASES = ["a b", "1", "c&d"].map((name, id) => ({ id, name })) as CaseSummary[];

test("an address may contain the name of a case", () => {
  assert.equal(caseInAddress(CASES, "#case=a%20b"), 0);
  assert.equal(caseInAddress(CASES, "#case=1"), 1);
  assert.equal(caseInAddress(CASES, "#case=c%26d"), 2);
});

test("the page writes the number of a case", () => {
  for (const { id } of CASES) assert.equal(caseInAddress(CASES, addressOf(id)), id);
});

test("an address without a known case is ignored", () => {
  for (const hash of ["", "#", "#case=x", "#number=3", "#number=x"]) assert.equal(caseInAddress(CASES, hash), null);
});
