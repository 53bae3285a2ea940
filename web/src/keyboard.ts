/** Keyboard shortcuts and the list that explains them. */

import { button, element } from "./dom.ts";

/** A shortcut: the keys as shown in the list, a test for an event, and the action. */
export interface Shortcut {
  keys: string;
  text: string;
  matches: (event: KeyboardEvent) => boolean;
  action: (event: KeyboardEvent) => void;
}

/** Return a test for these keys without Ctrl, Alt or Meta. */
export function plain(...keys: string[]): (event: KeyboardEvent) => boolean {
  return (event) => keys.includes(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey;
}

/** Return a test for a letter with Ctrl (or Command), with or without Shift. */
export function control(key: string, shift: boolean): (event: KeyboardEvent) => boolean {
  return (event) =>
    event.key.toLowerCase() === key && (event.ctrlKey || event.metaKey) && event.shiftKey === shift && !event.altKey;
}

/** Return a shortcut. By default, its keys are the words of `keys`, without Ctrl, Alt or Meta. */
export function shortcut(
  keys: string,
  text: string,
  action: Shortcut["action"],
  matches = plain(...keys.split(" ")),
): Shortcut {
  return { keys, text, matches, action };
}

/** Return true if the focused element uses this key itself. */
function isTaken(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement;
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  if (target instanceof HTMLButtonElement || target instanceof HTMLAnchorElement) {
    return event.key === " " || event.key === "Enter";
  }
  if (!(target instanceof HTMLInputElement)) return false;
  if (target.type === "checkbox") return event.key === " ";
  if (target.type === "radio" || target.type === "range") {
    return event.key.startsWith("Arrow") || event.key.startsWith("Page") || event.key === " ";
  }
  return !["PageUp", "PageDown"].includes(event.key);
}

/** Handles shortcuts for the whole page. NiiVue's own shortcuts on the canvas are switched off. */
export class Keyboard {
  readonly help: HTMLDialogElement;
  readonly #shortcuts: Shortcut[];

  constructor(shortcuts: Shortcut[]) {
    this.help = element("dialog", { className: "help", "aria-labelledby": "help-title" });
    this.#shortcuts = [...shortcuts, shortcut("?", "Show this list", () => this.showHelp())];
    const rows = this.#shortcuts
      .filter(({ text }) => text !== "")
      .flatMap(({ keys, text }) => [
        element("dt", {}, ...keys.split(" ").map((key) => element("kbd", { textContent: key }))),
        element("dd", { textContent: text }),
      ]);
    this.help.append(
      element("h2", { id: "help-title", textContent: "Keyboard and mouse" }),
      element(
        "dl",
        {},
        ...rows,
        element("dt", { textContent: "Mouse" }),
        element("dd", {
          textContent: "Wheel: slices. Ctrl and wheel: zoom. Right button: window. Middle button: move.",
        }),
        element("dt", { textContent: "Touch" }),
        element("dd", { textContent: "A finger or a pen draws like the left button." }),
      ),
      button("Close", () => this.help.close()),
    );
    document.addEventListener("keydown", (event) => this.#press(event), { capture: true });
    document.addEventListener(
      "keyup",
      (event) => {
        if (event.target instanceof HTMLCanvasElement) event.stopPropagation();
      },
      { capture: true },
    );
  }

  showHelp(): void {
    this.help.showModal();
  }

  #press(event: KeyboardEvent): void {
    if (event.target instanceof HTMLCanvasElement) event.stopPropagation();
    if (document.querySelector("dialog[open]") !== null || isTaken(event)) return;
    const shortcut = this.#shortcuts.find(({ matches }) => matches(event));
    if (shortcut === undefined) return;
    event.preventDefault();
    shortcut.action(event);
  }
}
