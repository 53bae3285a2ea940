/** Scores of the case, one row per class. */

import type { Score } from "./api.ts";
import { decimals, element, fill, section } from "./dom.ts";

/** The table of scores in the side panel. */
export class ScorePanel {
  readonly #rows = element("tbody");
  readonly node = section(
    "Scores",
    element(
      "table",
      { className: "scores" },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          ...["Class", "Dice (%)", "HD95 (mm)"].map((name) => element("th", { scope: "col", textContent: name })),
        ),
      ),
      this.#rows,
    ),
  );

  setCase(scores: Score[]): void {
    this.node.hidden = scores.length === 0;
    fill(
      this.#rows,
      ...scores.map(({ class: name, dice, hd95 }) =>
        element(
          "tr",
          {},
          element("th", { scope: "row", textContent: name }),
          element("td", { textContent: decimals(dice === null ? null : dice * 100, 1) }),
          element("td", { textContent: decimals(hd95, 1) }),
        ),
      ),
    );
  }
}
