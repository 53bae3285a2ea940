/** The page of a run that is training: curves, speed and pictures as they arrive. */

import { Curve, type CurvePoint } from "./curve.ts";
import { duration, element, fill } from "./dom.ts";

interface State {
  status: "running" | "finished" | "stopped" | "failed" | "interrupted";
  step: number;
  total: number;
  steps_per_second: number | null;
  remaining: number | null;
  stages: { method: string; first: number; last: number }[];
}

interface Snapshot {
  step: number;
  pictures: string[];
}

const PICTURE_NAMES: Record<string, string> = { X: "image", Y: "labels", P: "pseudo-labels", M: "mask" };

/** Return the title of a curve. */
export function curveTitle(name: string): string {
  if (name === "total") return "Loss";
  if (name === "lr") return "Learning rate";
  const [group, ...rest] = name.split("/");
  return `${group === "terms" ? "Loss term" : "Validation"}: ${rest.join("/")}`;
}

/** Return a number that sorts the loss first, then validation, its terms and the learning rate. */
export function curveOrder(name: string): number {
  if (name === "total") return 0;
  if (name === "lr") return 3;
  return name.startsWith("terms/") ? 2 : 1;
}

/** Shows the events that the server sends. */
export class LivePage {
  readonly node: HTMLElement;
  readonly #status = element("p", { className: "status", role: "status" });
  readonly #progress = element("progress", { max: 1, value: 0, "aria-label": "Progress of the training" });
  readonly #tiles = element("dl", { className: "tiles" });
  readonly #charts = element("div", { className: "charts" });
  readonly #pictures = element("div", { className: "pictures" });
  readonly #pictureHeading = element("h2", { textContent: "Latest training images", hidden: true });
  readonly #end = element("p", { className: "notice good", hidden: true });
  readonly #curves = new Map<string, Curve>();
  #state: State | null = null;
  #events: EventSource | null = null;

  constructor() {
    this.node = element(
      "main",
      { className: "live", tabIndex: 0 },
      this.#end,
      this.#status,
      this.#progress,
      this.#tiles,
      this.#charts,
      this.#pictureHeading,
      this.#pictures,
    );
    this.#status.textContent = "Waiting for the first steps";
  }

  /** Listen to the server. After a lost connection, the server sends everything again. */
  start(): void {
    const events = new EventSource("/api/live");
    this.#events = events;
    events.addEventListener("open", () => this.#clear());
    this.#on<State>("state", (state) => this.#showState(state));
    this.#on<{ curves: Record<string, CurvePoint[]> }>("points", ({ curves }) => this.#addPoints(curves));
    this.#on<Snapshot>("snapshot", (snapshot) => this.#showPictures(snapshot));
    this.#on<{ closes: boolean }>("end", ({ closes }) => this.#finish(closes));
  }

  #on<T>(name: string, action: (content: T) => void): void {
    this.#events!.addEventListener(name, (event) => action(JSON.parse((event as MessageEvent<string>).data) as T));
  }

  #clear(): void {
    this.#curves.clear();
    this.#charts.replaceChildren();
  }

  #showState(state: State): void {
    this.#state = state;
    const stage = state.stages.find(({ first, last }) => state.step >= first && state.step <= last);
    const texts = {
      running: "Training",
      finished: "Finished",
      stopped: "Stopped",
      failed: "Failed",
      interrupted: "Interrupted",
    };
    const method = stage !== undefined && state.status === "running" ? `: ${stage.method}` : "";
    const text = texts[state.status] + method;
    if (this.#status.textContent !== text) this.#status.textContent = text;
    this.#progress.max = Math.max(1, state.total);
    this.#progress.value = state.step;
    const isRunning = state.status === "running";
    fill(
      this.#tiles,
      tile("Step", `${state.step}`, `of ${state.total}`),
      tile("Speed", state.steps_per_second?.toPrecision(3) ?? "–", "steps per second"),
      tile("Time left", isRunning && state.remaining !== null ? duration(state.remaining) : "–", ""),
    );
    this.#draw();
  }

  #addPoints(curves: Record<string, CurvePoint[]>): void {
    for (const [name, points] of Object.entries(curves)) this.#curve(name).add(points);
    this.#draw();
  }

  #curve(name: string): Curve {
    const known = this.#curves.get(name);
    if (known !== undefined) return known;
    const curve = new Curve(curveTitle(name), name.startsWith("validation/"));
    this.#curves.set(name, curve);
    const sorted = [...this.#curves].sort(([a], [b]) => curveOrder(a) - curveOrder(b) || a.localeCompare(b));
    this.#charts.replaceChildren(...sorted.map(([, { node }]) => node));
    return curve;
  }

  #draw(): void {
    const stages = this.#state?.stages.slice(1).map(({ first }) => first) ?? [];
    for (const curve of this.#curves.values()) curve.draw(this.#state?.total ?? 1, stages);
  }

  #showPictures({ step, pictures }: Snapshot): void {
    this.#pictureHeading.hidden = pictures.length === 0;
    this.#pictureHeading.textContent = `Training images of step ${step}`;
    fill(
      this.#pictures,
      ...pictures.map((name) => {
        const kind = PICTURE_NAMES[name[0] ?? ""] ?? "picture";
        const image = element("img", {
          src: `/api/snapshots/${step}/${encodeURIComponent(name)}.png`,
          alt: `${name}, ${kind} of step ${step}`,
        });
        return element("figure", {}, image, element("figcaption", { textContent: `${name} (${kind})` }));
      }),
    );
  }

  /** Link the report, or show it at once if the server is about to close. */
  #finish(closes: boolean): void {
    this.#events?.close();
    this.#end.hidden = false;
    fill(this.#end, "The training has ended. ", element("a", { href: "/report", textContent: "Open the report" }));
    if (closes && this.#state?.status === "finished" && this.node.checkVisibility()) location.assign("/report");
  }
}

function tile(name: string, value: string, note: string): HTMLElement {
  return element(
    "div",
    {},
    element("dt", { textContent: name }),
    element("dd", {}, value, note === "" ? null : element("small", { textContent: ` ${note}` })),
  );
}
