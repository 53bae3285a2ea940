/** The state of saving, always visible in the header. */

import { element } from "./dom.ts";
import type { SaveState } from "./stroke_queue.ts";

/** Return the state in words. */
export function saveText(state: SaveState): string {
  if (state.kind === "saved") return "saved";
  const strokes = `${state.waiting} ${state.waiting === 1 ? "stroke" : "strokes"}`;
  if (state.kind === "saving") return "saving";
  return `offline: ${strokes} ${state.waiting === 1 ? "waits" : "wait"}, retrying`;
}

/** The words in the header. Screen readers announce changes. */
export class SaveIndicator {
  readonly node = element("p", { className: "save", role: "status", "aria-live": "polite", textContent: "saved" });

  show(state: SaveState): void {
    const text = saveText(state);
    if (this.node.textContent !== text) this.node.textContent = text;
    this.node.dataset["state"] = state.kind;
  }
}
