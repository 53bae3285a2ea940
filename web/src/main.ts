/** Start of the page. */

import { getSession, type Session } from "./api.ts";
import { Annotation } from "./annotation.ts";
import { button, element } from "./dom.ts";
import { Keyboard } from "./keyboard.ts";
import { TrainingPanel } from "./training_panel.ts";
import { ViewerPage } from "./viewer_page.ts";

async function start(app: HTMLElement): Promise<void> {
  const session = await getSession();
  document.title = `${session.title} – graftseg`;
  const header = headerOf(session);
  app.replaceChildren(header);
  const page = await ViewerPage.start(session, app);
  const annotation = session.mode === "annotate" ? await Annotation.start(page) : null;
  if (annotation !== null) header.append(annotation.indicator.node);
  if (session.can_train) page.panel.append(new TrainingPanel().node);
  const keyboard = new Keyboard([...page.shortcuts(), ...(annotation?.shortcuts() ?? [])]);
  header.append(button("?", () => keyboard.showHelp(), { className: "round", "aria-label": "Keyboard and mouse", title: "Keyboard and mouse" }));
  app.append(keyboard.help);
  // For tests and for the console of the browser.
  Object.assign(window, { graftseg: { page, annotation } });
  await page.openFirst();
}

function headerOf(session: Session): HTMLElement {
  return element("header", { className: "bar" },
    element("p", { className: "brand", textContent: "graftseg" }),
    element("h1", { textContent: session.title }),
    element("span", { className: "mode", textContent: session.mode === "annotate" ? "annotate" : session.kind }),
    element("span", { className: "space" }),
    session.has_report ? element("a", { href: "/report", textContent: "Report" }) : null,
  );
}

const app = document.getElementById("app")!;
start(app).catch((error: unknown) => {
  app.replaceChildren(element("p", { className: "notice", role: "alert", textContent: error instanceof Error ? error.message : String(error) }));
});
