/** The list of cases: sorting, filtering and selection. */

import type { CaseSummary, Session } from "./api.ts";
import { decimals, element, fill } from "./dom.ts";

export type SortKey = "rank" | "name" | "dice" | "uncertainty";

const SORT_NAMES: Record<SortKey, string> = {
  rank: "rank",
  name: "name",
  dice: "Dice (low first)",
  uncertainty: "uncertainty (high first)",
};
const STATE_NAMES: Record<CaseSummary["state"], string> = {
  open: "",
  accepted: "accepted",
  skipped: "skipped",
  rejected: "rejected",
};

/** Return the cases in the order of a key. Cases without a value come last. */
export function sortCases(cases: readonly CaseSummary[], key: SortKey): CaseSummary[] {
  const byName = (a: CaseSummary, b: CaseSummary): number => a.name.localeCompare(b.name, "en", { numeric: true });
  if (key === "name") return [...cases].sort(byName);
  const sign = key === "uncertainty" ? -1 : 1;
  const value = (item: CaseSummary): number => (item[key] === null ? Infinity : sign * item[key]);
  return [...cases].sort((a, b) => (value(a) === value(b) ? byName(a, b) : value(a) - value(b)));
}

/** Return the cases whose name, split and state together contain all words of the text. */
export function filterCases(cases: readonly CaseSummary[], text: string): CaseSummary[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return cases.filter(({ name, split, state }) =>
    words.every((word) => `${name} ${split} ${state}`.toLowerCase().includes(word)),
  );
}

/** Return the keys that at least one case has a value for. */
function sortKeysOf(session: Session): SortKey[] {
  return (Object.keys(SORT_NAMES) as SortKey[]).filter(
    (key) => key === "name" || session.cases.some((item) => item[key] !== null),
  );
}

function defaultSortKey(session: Session): SortKey {
  const keys = sortKeysOf(session);
  if (session.mode === "annotate" && keys.includes("rank")) return "rank";
  return keys.includes("dice") ? "dice" : "name";
}

/** Return the first open case of the list, or the first case if none is open. */
export function firstCaseOf(session: Session): number | null {
  const all = sortCases(session.cases, defaultSortKey(session));
  return (all.find(({ state }) => state === "open") ?? all[0])?.id ?? null;
}

/** The list on the left side of the page. */
export class CaseList {
  readonly node: HTMLElement;
  onSelect: (id: number) => void = () => undefined;
  #cases: CaseSummary[];
  readonly #isAnnotating: boolean;
  #shown: CaseSummary[] = [];
  #selected: number | null = null;
  #key: SortKey;
  readonly #list = element("ul", { className: "cases" });
  readonly #count = element("p", { className: "quiet", role: "status" });
  readonly #filter = element("input", {
    type: "search",
    id: "filter",
    placeholder: "Filter",
    autocomplete: "off",
    spellcheck: false,
  });

  constructor(session: Session) {
    this.#cases = session.cases;
    this.#isAnnotating = session.mode === "annotate";
    const keys = sortKeysOf(session);
    this.#key = defaultSortKey(session);
    const select = element("select", { id: "sort" });
    for (const key of keys) {
      select.append(element("option", { value: key, textContent: SORT_NAMES[key], selected: key === this.#key }));
    }
    select.addEventListener("change", () => this.#sort(select.value as SortKey));
    this.#filter.addEventListener("input", () => this.#draw());
    this.node = element(
      "nav",
      { className: "list", "aria-label": "Cases" },
      element(
        "div",
        { className: "list-head" },
        element("label", { htmlFor: "filter", className: "hidden-label", textContent: "Filter cases" }),
        this.#filter,
        element("label", { htmlFor: "sort", className: "field-name", textContent: "Sort by" }),
        select,
      ),
      this.#list,
      this.#count,
    );
    this.#draw();
  }

  /** Mark a case as selected and scroll to it. */
  select(id: number): void {
    this.#selected = id;
    this.#draw();
    this.#list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  /** Show the new states of the cases. */
  update(cases: CaseSummary[]): void {
    this.#cases = cases;
    this.#draw();
  }

  /** Return the case a number of rows below (or above) the selected one. */
  neighbor(rows: number): number | null {
    const place = this.#shown.findIndex(({ id }) => id === this.#selected);
    return this.#shown[place + rows]?.id ?? null;
  }

  focusFilter(): void {
    this.#filter.focus();
    this.#filter.select();
  }

  #sort(key: SortKey): void {
    this.#key = key;
    this.#draw();
  }

  #draw(): void {
    this.#shown = sortCases(filterCases(this.#cases, this.#filter.value), this.#key);
    const focused = this.#list.contains(document.activeElement) ? this.#selected : null;
    fill(this.#list, ...this.#shown.map((item) => this.#row(item)));
    if (focused !== null) this.#list.querySelector<HTMLElement>("[aria-current]")?.focus();
    const total = this.#cases.length;
    const shown = this.#shown.length;
    this.#count.textContent =
      shown === total ? `${total} ${total === 1 ? "case" : "cases"}` : `${shown} of ${total} cases`;
  }

  #row(item: CaseSummary): HTMLElement {
    const isSelected = item.id === this.#selected;
    const row = element("button", {
      type: "button",
      className: "case",
      title: [item.name, ...item.reasons].join("\n"),
    });
    if (isSelected) row.setAttribute("aria-current", "true");
    row.append(element("span", { className: "case-name", textContent: item.name }), this.#figures(item));
    const notes = [item.split, STATE_NAMES[item.state], item.has_draft && item.state === "open" ? "draft" : ""]
      .filter(Boolean)
      .join(", ");
    if (notes) row.append(element("span", { className: `case-notes state-${item.state}`, textContent: notes }));
    if (this.#isAnnotating && item.reasons.length > 0) {
      row.append(element("span", { className: "case-reasons", textContent: item.reasons.join(", ") }));
    }
    row.addEventListener("click", () => this.onSelect(item.id));
    return element("li", {}, row);
  }

  #figures(item: CaseSummary): HTMLElement {
    const parts: string[] = [];
    if (this.#isAnnotating && item.rank !== null) parts.push(`#${item.rank}`);
    if (item.dice !== null) parts.push(`Dice ${decimals(item.dice * 100, 1)}`);
    if (this.#key === "uncertainty" && item.uncertainty !== null) parts.push(`unc. ${decimals(item.uncertainty, 2)}`);
    return element("span", { className: "case-figures", textContent: parts.join(" · ") });
  }
}
