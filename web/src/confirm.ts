/** A dialog that asks before something is discarded. */

import { button, element } from "./dom.ts";

/** Ask a question. Return true if the user confirms it. */
export function confirmDialog(title: string, text: string, action: string): Promise<boolean> {
  return new Promise((resolve) => {
    const dialog = element("dialog", { "aria-labelledby": "confirm-title" });
    const close = (answer: boolean): void => {
      resolve(answer);
      dialog.remove();
    };
    dialog.append(
      element("h2", { id: "confirm-title", textContent: title }),
      element("p", { textContent: text }),
      element(
        "div",
        { className: "actions" },
        button(action, () => close(true), { className: "danger" }),
        button("Cancel", () => close(false), { autofocus: true }),
      ),
    );
    dialog.addEventListener("cancel", () => close(false));
    document.body.append(dialog);
    dialog.showModal();
  });
}
