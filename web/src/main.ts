/** Start of the page. */

import { Annotation } from "./annotation.ts";
import { getSession, type Session } from "./api.ts";
import { button, element } from "./dom.ts";
import { Keyboard } from "./keyboard.ts";
import { LivePage } from "./live_page.ts";
import { TrainingPanel } from "./training_panel.ts";
import { ViewerPage } from "./viewer_page.ts";

async function start(app: HTMLElement): Promise<void> {
  const session = await getSession();
  // Names of scans and folders may contain names of patients, and the browser keeps titles in its history.
  document.title = `${session.kind === "run" ? session.title : session.kind} – graftseg`;
  const header = headerOf(session);
  app.replaceChildren(header);
  if (session.is_live) showLivePage(app, header, session);
  else await showScans(app, header, session);
}

async function showScans(app: HTMLElement, header: HTMLElement, session: Session): Promise<void> {
  const page = await ViewerPage.start(session, app);
  const annotation = session.mode === "annotate" ? await Annotation.start(page) : null;
  if (annotation !== null) {
    header.append(annotation.indicator.node);
    page.panel.append(new TrainingPanel(() => annotation.useNewNetwork()).node);
  }
  const keyboard = new Keyboard([...page.shortcuts(), ...(annotation?.shortcuts() ?? [])]);
  header.append(
    button("?", () => keyboard.showHelp(), {
      className: "round",
      "aria-label": "Keyboard and mouse",
      title: "Keyboard and mouse",
    }),
  );
  app.append(keyboard.help);
  // For tests and for the console of the browser.
  Object.assign(window, { graftseg: { page, annotation } });
  await page.openFirst((await annotation?.interruptedCase()) ?? null);
}

function headerOf(session: Session): HTMLElement {
  return element(
    "header",
    { className: "bar" },
    element("p", { className: "brand", textContent: "graftseg" }),
    element("h1", { textContent: session.title }),
    element("span", { className: "mode", textContent: session.mode === "annotate" ? "annotate" : session.kind }),
    element("div", { className: "tabs", role: "group", "aria-label": "Pages" }),
    element("span", { className: "space" }),
    session.has_report ? element("a", { href: "/report", textContent: "Report" }) : null,
  );
}

/** Show the live page, and the scans only when they are asked for, because they would slow down the training. */
function showLivePage(app: HTMLElement, header: HTMLElement, session: Session): void {
  const live = new LivePage();
  let hasScans = false;
  const show = (isLive: boolean): void => {
    app.classList.toggle("shows-live", isLive);
    training.setAttribute("aria-pressed", String(isLive));
    scans.setAttribute("aria-pressed", String(!isLive));
    if (isLive || hasScans) return;
    hasScans = true;
    void showScans(app, header, session);
  };
  const training = button("Training", () => show(true));
  const scans = button("Scans", () => show(false));
  header.querySelector(".tabs")!.append(training, scans);
  app.append(live.node);
  show(true);
  live.start();
}

const app = document.getElementById("app")!;
start(app).catch((error: unknown) => {
  app.replaceChildren(
    element("p", {
      className: "notice",
      role: "alert",
      textContent: error instanceof Error ? error.message : String(error),
    }),
  );
});
