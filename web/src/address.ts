/** The case in the address of the page. */

import type { CaseSummary } from "./api.ts";

/**
 * Return the number of the case in an address, or null. Links contain a name: `?case=NAME` or `#case=NAME`. The page
 * itself writes `#number=N`, because names may be those of patients, and the browser keeps addresses in its history.
 */
export function caseInAddress(cases: readonly CaseSummary[], search: string, hash: string): number | null {
  const written = new URLSearchParams(hash.slice(1));
  const number = written.get("number");
  const name = written.get("case") ?? new URLSearchParams(search).get("case");
  return cases.find((item) => (number === null ? item.name === name : String(item.id) === number))?.id ?? null;
}

/** Return the address of a case without its name. */
export function addressOf(id: number): string {
  return `#number=${id}`;
}
