/** Helpers that build elements without HTML text, so that names from data are never parsed as markup. */

type Child = Node | string | null;

/** Return a new element with these properties, attributes (names with a dash) and children. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, String(value));
    else (node as unknown as Record<string, unknown>)[name] = value;
  }
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/** Return a button with this label that calls `action`. */
export function button(label: string, action: () => void, properties: Record<string, unknown> = {}): HTMLButtonElement {
  const node = element("button", { type: "button", textContent: label, ...properties });
  node.addEventListener("click", action);
  return node;
}

/** Return a labeled checkbox. */
export function checkbox(label: string, checked: boolean, changed: (checked: boolean) => void): HTMLLabelElement {
  const input = element("input", { type: "checkbox", checked });
  input.addEventListener("change", () => changed(input.checked));
  return element("label", { className: "check" }, input, label);
}

/** Return a section of a side panel with a heading. */
export function section(heading: string, ...children: Child[]): HTMLElement {
  return element("section", { className: "group" }, element("h2", { textContent: heading }), ...children);
}

/** Replace all children of a node. */
export function fill(node: Element, ...children: Child[]): void {
  node.replaceChildren(...children.filter((child): child is Node | string => child !== null));
}

/** Return a number with a fixed number of decimals, or an en dash if it is missing. */
export function decimals(value: number | null, digits: number): string {
  return value === null ? "–" : value.toFixed(digits);
}

/** Return a duration in words, such as `2 min 5 s`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
