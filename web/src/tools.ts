/** The panel with drawing tools and actions. */

import { button, element, section } from "./dom.ts";

export type Tool = "navigate" | "brush" | "eraser" | "outline" | "fill";

const TOOLS: readonly { tool: Tool; name: string; key: string; hint: string }[] = [
  { tool: "navigate", name: "Navigate", key: "n", hint: "Move the crosshair" },
  { tool: "brush", name: "Brush", key: "b", hint: "Draw the chosen class" },
  { tool: "eraser", name: "Eraser", key: "e", hint: "Set voxels to background" },
  { tool: "outline", name: "Outline", key: "o", hint: "Draw a closed outline, which is filled with the chosen class" },
  { tool: "fill", name: "Fill", key: "f", hint: "Click a region to fill it with the chosen class" },
];

/** Called by the buttons of the panel. */
export interface ToolActions {
  undo: () => void;
  redo: () => void;
  interpolate: () => void;
  reset: () => void;
}

/** The tools and the size of the brush. */
export class ToolPanel {
  readonly node: HTMLElement;
  onTool: (tool: Tool) => void = () => undefined;
  readonly #buttons = new Map<Tool, HTMLButtonElement>();
  readonly #size = element("input", { type: "range", id: "brush-size", min: "1", max: "40", value: "5" });
  readonly #sizeText = element("output", { htmlFor: "brush-size", textContent: "5" });
  readonly #undo: HTMLButtonElement;
  readonly #redo: HTMLButtonElement;
  readonly #interpolate: HTMLButtonElement;
  readonly #interpolationText = element("p", { className: "quiet" });
  readonly #reset: HTMLButtonElement;
  #tool: Tool = "navigate";
  #isEnabled = true;

  constructor(actions: ToolActions) {
    for (const { tool, name, key, hint } of TOOLS) {
      this.#buttons.set(
        tool,
        button(name, () => this.choose(tool), { title: `${hint} (${key})` }),
      );
    }
    this.#size.addEventListener("input", () => (this.#sizeText.textContent = this.#size.value));
    this.#undo = button("Undo", actions.undo, { title: "Undo (Ctrl+Z)" });
    this.#redo = button("Redo", actions.redo, { title: "Redo (Ctrl+Y)" });
    this.#interpolate = button("Interpolate", actions.interpolate, {
      title: "Fill the slices between the last two that you drew on (i)",
    });
    this.#reset = button("Start over", actions.reset, { title: "Discard all changes of this drawing" });
    this.node = section(
      "Tools",
      element("div", { className: "tools", role: "toolbar", "aria-label": "Tools" }, ...this.#buttons.values()),
      element(
        "div",
        { className: "slider brush-size" },
        element("label", { htmlFor: "brush-size", textContent: "Size" }),
        this.#size,
        this.#sizeText,
      ),
      element("div", { className: "actions" }, this.#undo, this.#redo, this.#interpolate, this.#reset),
      this.#interpolationText,
    );
    this.choose("brush");
    this.setHistory(false, false);
    this.setInterpolation("");
  }

  get tool(): Tool {
    return this.#isEnabled ? this.#tool : "navigate";
  }

  get size(): number {
    return Number(this.#size.value);
  }

  choose(tool: Tool): void {
    this.#tool = tool;
    for (const [key, control] of this.#buttons) control.setAttribute("aria-pressed", String(key === tool));
    this.onTool(tool);
  }

  /** Choose the tool with this shortcut. */
  press(key: string): void {
    const pressed = TOOLS.find((entry) => entry.key === key);
    if (pressed !== undefined) this.choose(pressed.tool);
  }

  /** Make the brush larger or smaller. */
  resize(step: number): void {
    this.#size.value = String(this.size + step);
    this.#sizeText.textContent = this.#size.value;
    this.onTool(this.#tool);
  }

  setHistory(canUndo: boolean, canRedo: boolean): void {
    this.#undo.disabled = !canUndo || !this.#isEnabled;
    this.#redo.disabled = !canRedo || !this.#isEnabled;
  }

  /** Say which slices would be interpolated. An empty text disables the button. */
  setInterpolation(text: string): void {
    this.#interpolate.disabled = text === "" || !this.#isEnabled;
    this.#interpolationText.textContent = text === "" ? "To interpolate, draw on two slices of the same plane." : text;
  }

  /** Hide the interpolation if the scan has one slice. */
  setFlat(isFlat: boolean): void {
    this.#interpolate.hidden = isFlat;
    this.#interpolationText.hidden = isFlat;
  }

  /** Switch all tools on or off. */
  setEnabled(isEnabled: boolean): void {
    this.#isEnabled = isEnabled;
    for (const control of [...this.#buttons.values(), this.#undo, this.#redo, this.#interpolate, this.#reset]) {
      control.disabled = !isEnabled;
    }
  }
}
