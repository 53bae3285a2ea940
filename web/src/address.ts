/** The case in the address of the page. */

import type { CaseSummary } from "./api.ts";

/**
 * Return the case in the part of an address after the page, or null. It is `#number=N`, because names may be those of
 * patients, and the browser keeps addresses in its history. `#case=NAME` is accepted, too. The server replaces
 * `?case=NAME`, which links contain.
 */
export function caseInAddress(cases: readonly CaseSummary[], hash: string): number | null {
  const written = new URLSearchParams(hash.slice(1));
  const [number, name] = [written.get("number"), written.get("case")];
  return cases.find((item) => (number === null ? item.name === name : String(item.id) === number))?.id ?? null;
}

/** Return the address of a case without its name. */
export function addressOf(id: number): string {
  return `#number=${id}`;
}
