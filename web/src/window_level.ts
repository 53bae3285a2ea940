/** Controls of the intensity window. */

import { button, element, section } from "./dom.ts";
import type { PlaneView } from "./plane_view.ts";

/** Two numbers, black and white, with a button that restores the window of the scan. */
export class WindowPanel {
  readonly node: HTMLElement;
  readonly #view: PlaneView;
  readonly #low = element("input", { type: "number", id: "window-low", step: "any" });
  readonly #high = element("input", { type: "number", id: "window-high", step: "any" });
  #original: [number, number] = [0, 1];

  constructor(view: PlaneView) {
    this.#view = view;
    view.onWindow = (window) => this.#show(window);
    this.#low.addEventListener("change", () => this.#apply(true));
    this.#high.addEventListener("change", () => this.#apply(false));
    const smooth = element("input", { type: "checkbox", checked: true, id: "smooth" });
    smooth.addEventListener("change", () => view.setSmooth(smooth.checked));
    this.node = section(
      "Window",
      element(
        "div",
        { className: "window" },
        element("label", { htmlFor: "window-low", textContent: "Black" }),
        this.#low,
        element("label", { htmlFor: "window-high", textContent: "White" }),
        this.#high,
        button("Reset", () => view.setWindow(...this.#original), { title: "Restore the window of this scan" }),
      ),
      element("label", { className: "check" }, smooth, "Smooth pixels"),
    );
  }

  /** Use the window of a new scan. */
  setCase(window: [number, number]): void {
    this.#original = window;
    this.#show(window);
  }

  /** Use the numbers in the fields. If the changed number passes the other one, the whole window moves. */
  #apply(isLow: boolean): void {
    const width = this.#view.window[1] - this.#view.window[0];
    let [low, high] = [this.#low.valueAsNumber, this.#high.valueAsNumber];
    if (isLow && low >= high) high = low + width;
    if (!isLow && low >= high) low = high - width;
    if (high > low) this.#view.setWindow(low, high);
    else this.#show(this.#view.window);
  }

  #show([low, high]: [number, number]): void {
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(high - low, 1e-6))));
    this.#low.value = low.toFixed(Math.min(digits, 6));
    this.#high.value = high.toFixed(Math.min(digits, 6));
  }
}
