/** The page with the case list, the planes and the side panel. */

import { addressOf, caseInAddress } from "./address.ts";
import { getCase, getVolume, type CaseDetails, type Layer, type Session } from "./api.ts";
import { CaseList, firstCaseOf } from "./case_list.ts";
import { element } from "./dom.ts";
import { plain, shortcut, type Shortcut } from "./keyboard.ts";
import { ClassPanel, LayerPanel } from "./layers.ts";
import { readLabels, readNifti, type Volume } from "./nifti.ts";
import { isStreamed, loadMiddle, streamScan } from "./scan_stream.ts";
import { ScorePanel } from "./scores.ts";
import { middleOf, sliceOf } from "./slices.ts";
import { Stage, type NamedLabels } from "./stage.ts";
import { WindowPanel } from "./window_level.ts";

interface LoadedCase {
  details: CaseDetails;
  scan: Volume;
}

interface Loading {
  id: number;
  content: Promise<LoadedCase>;
}

async function loadCase(id: number): Promise<LoadedCase> {
  const details = await getCase(id);
  return { details, scan: await loadScan(details, 0) };
}

/** Load a scan, or only its middle slices if it is large. */
async function loadScan(details: CaseDetails, channel: number): Promise<Volume> {
  if (isStreamed(details)) return loadMiddle(details, channel);
  return readNifti(await getVolume(details.id, "image", channel));
}

/** Return the case in the address, or the first case of the list. */
function firstCase(session: Session): number | null {
  return caseInAddress(session.cases, location.hash) ?? firstCaseOf(session);
}

function loadFirst(session: Session): Loading | null {
  const id = firstCase(session);
  if (id === null) return null;
  const content = loadCase(id);
  content.catch(() => undefined); // the error is shown when the case is opened
  return { id, content };
}

/** Shows cases. The annotation page adds drawing to it. */
export class ViewerPage {
  readonly node: HTMLElement;
  readonly session: Session;
  readonly list: CaseList;
  readonly stage: Stage;
  readonly classes: ClassPanel;
  readonly layers: LayerPanel;
  readonly panel = element("aside", { className: "panel", "aria-label": "Display" });
  readonly #window: WindowPanel;
  readonly #scores = new ScorePanel();
  readonly #notice = element("p", { className: "notice", role: "alert", hidden: true });
  /** Returns label maps that are named before those of the server, such as the draft. */
  moreLabels: () => NamedLabels[] = () => [];
  readonly #labels = new Map<Layer, Uint8Array<ArrayBuffer>>();
  /** Called after the scan of a case is shown. */
  onShown: (details: CaseDetails) => Promise<void> = () => Promise.resolve();
  /** Called before another case is opened. Returns false to stay. */
  onLeave: () => Promise<boolean> = () => Promise.resolve(true);
  #details: CaseDetails | null = null;
  /** Number of cases opened so far. A case that is loaded too late is not shown. */
  #openings = 0;
  #stopStream = new AbortController();
  #loading: Loading | null = null;

  private constructor(session: Session, stage: Stage) {
    const isAnnotating = session.mode === "annotate";
    this.session = session;
    this.stage = stage;
    this.list = new CaseList(session);
    this.list.onSelect = (id) => void this.open(id);
    this.classes = new ClassPanel(stage.view, session.classes, isAnnotating);
    this.layers = new LayerPanel(stage.view, isAnnotating);
    this.layers.onNeeded = (layer) => void this.#loadLayer(layer);
    this.#window = new WindowPanel(stage.view);
    stage.labelMaps = () => this.#labelMaps();
    stage.onChannel = (channel) => void this.#showChannel(channel);
    stage.node.prepend(this.#notice);
    this.panel.append(this.classes.node, this.layers.node, this.#window.node, this.#scores.node);
    this.node = element("div", { className: "viewer" }, this.list.node, stage.node, this.panel);
  }

  /** Build the page inside a parent, because NiiVue needs an attached canvas. The first case is loaded meanwhile. */
  static async start(session: Session, parent: Element): Promise<ViewerPage> {
    const loading = loadFirst(session);
    const stage = new Stage(session.classes);
    const place = element("div", { className: "viewer" }, stage.node);
    parent.append(place);
    await stage.start();
    const page = new ViewerPage(session, stage);
    page.#loading = loading;
    place.replaceWith(page.node);
    return page;
  }

  /** Open a case that needs attention, else the case named in the address, else the first one. */
  async openFirst(urgent: number | null): Promise<void> {
    window.addEventListener("hashchange", () => void this.#openAddressed());
    const first = urgent ?? firstCase(this.session);
    if (first !== null) await this.open(first);
  }

  /** Open a case. */
  async open(id: number): Promise<void> {
    if (id === this.#details?.id || !(await this.onLeave())) return;
    const opening = ++this.#openings;
    this.#details = null;
    this.stage.node.dataset["state"] = "loading";
    this.list.select(id);
    this.notify("");
    try {
      const loaded = await this.#load(id);
      if (opening !== this.#openings) return;
      await this.#show(loaded);
    } catch (error) {
      if (opening !== this.#openings) return;
      this.stage.node.dataset["state"] = "failed";
      this.#scores.setCase([]);
      this.notify(error instanceof Error ? error.message : String(error));
    }
  }

  /** Return the open case, or null while a case is loading and after it could not be loaded. */
  get details(): CaseDetails | null {
    return this.#details;
  }

  /** Show a message above the planes, or hide it. */
  notify(text: string, isGood = false): void {
    this.#notice.textContent = text;
    this.#notice.hidden = text === "";
    this.#notice.classList.toggle("good", isGood);
  }

  /** Return the shortcuts of this page. */
  shortcuts(): Shortcut[] {
    const slices = (event: KeyboardEvent): number =>
      (event.key === "ArrowUp" || event.key === "ArrowRight" ? 1 : -1) * (event.shiftKey ? 10 : 1);
    const isAnnotating = this.session.mode === "annotate";
    return [
      shortcut(
        "↑ ↓ ← →",
        "Next or previous slice (with Shift: 10 slices)",
        (event) => this.stage.scroll(slices(event)),
        plain("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"),
      ),
      shortcut("PageUp PageDown", "Previous or next case", (event) => this.#step(event.key === "PageDown" ? 1 : -1)),
      shortcut(
        "1–9",
        isAnnotating ? "Choose the class to draw" : "Show or hide a class",
        (event) => this.classes.press(Number(event.key)),
        plain(..."123456789"),
      ),
      shortcut("Space", "Show or hide all overlays", () => this.layers.toggleAll(), plain(" ")),
      shortcut("a c s v", "Axial, coronal, sagittal, all planes", (event) => this.#arrange(event.key)),
      shortcut("+ - 0", "Zoom in, zoom out, fit", (event) => this.#zoom(event.key), plain("+", "=", "-", "0")),
      shortcut("/", "Filter cases", () => this.list.focusFilter()),
    ];
  }

  #arrange(key: string): void {
    if (this.#details?.is_2d) return;
    this.stage.arrange(({ a: 0, c: 1, s: 2, v: "all" } as const)[key as "a" | "c" | "s" | "v"]);
  }

  #zoom(key: string): void {
    this.stage.view.zoom(key === "0" ? 0 : key === "-" ? 1 / 1.25 : 1.25);
  }

  #step(rows: number): void {
    const id = this.list.neighbor(rows);
    if (id !== null) void this.open(id);
  }

  async #openAddressed(): Promise<void> {
    const id = caseInAddress(this.session.cases, location.hash);
    if (id !== null) await this.open(id);
  }

  /** Load a case, or take the one that was loaded while the page was built. */
  #load(id: number): Promise<LoadedCase> {
    const ready = this.#loading;
    this.#loading = null;
    return ready?.id === id ? ready.content : loadCase(id);
  }

  async #show({ details, scan }: LoadedCase): Promise<void> {
    this.#details = details;
    this.#labels.clear();
    this.stage.node.dataset["layers"] = "";
    for (const layer of ["reference", "prediction", "uncertainty", "difference", "draft"] as const) {
      this.stage.view.setLayer(layer, null);
    }
    this.stage.view.drawOnce(() => {
      this.stage.show(scan, details);
      this.layers.setCase(details, this.session.mode === "annotate");
    });
    this.#window.setCase(details.window);
    this.#scores.setCase(details.scores);
    history.replaceState(null, "", location.pathname + addressOf(details.id));
    void this.#stream(scan, details, 0);
    await this.onShown(details);
    this.stage.node.dataset["state"] = "ready";
  }

  async #showChannel(channel: number): Promise<void> {
    const details = this.#details;
    if (details === null) return;
    const scan = await loadScan(details, channel);
    if (this.#details !== details) return;
    const range = channel === 0 ? details.window : robustRange(scan);
    this.stage.showChannel(scan, range);
    this.#window.setCase(range);
    void this.#stream(scan, details, channel);
  }

  /** Load the voxels of a scan whose middle slices are shown. */
  async #stream(scan: Volume, details: CaseDetails, channel: number): Promise<void> {
    this.#stopStream.abort();
    const stop = (this.#stopStream = new AbortController());
    const state = this.stage.node.dataset;
    state["voxels"] = scan.isComplete ? "complete" : "loading";
    if (scan.isComplete) return;
    await this.stage.view.drawn();
    try {
      await streamScan(scan, details.id, channel, stop.signal, (loaded) => {
        if (!stop.signal.aborted) this.stage.addSlices(loaded);
      });
    } catch (error) {
      if (!stop.signal.aborted) this.notify(error instanceof Error ? error.message : String(error));
      return;
    }
    if (stop.signal.aborted) return;
    state["voxels"] = "complete";
    this.stage.showPosition();
    this.stage.refreshRendering();
  }

  async #loadLayer(layer: Layer): Promise<void> {
    const details = this.#details;
    if (details === null || this.#labels.has(layer)) return;
    this.#labels.set(layer, new Uint8Array(0));
    try {
      const labels = readLabels(await getVolume(details.id, layer), details.shape);
      if (this.#details !== details) return;
      this.#labels.set(layer, labels);
      this.stage.view.setLayer(layer, labels);
      this.stage.view.drawScene();
      this.stage.node.dataset["layers"] = [...this.#labels]
        .filter(([, loaded]) => loaded.length > 0)
        .map(([name]) => name)
        .join(" ");
      this.stage.showPosition();
      this.stage.refreshRendering();
    } catch (error) {
      this.#labels.delete(layer);
      this.notify(error instanceof Error ? error.message : String(error));
    }
  }

  #labelMaps(): NamedLabels[] {
    const loaded = (["prediction", "reference"] as const).flatMap((name) => {
      const labels = this.#labels.get(name);
      return labels === undefined || labels.length === 0 ? [] : [{ name, labels }];
    });
    return [...this.moreLabels(), ...loaded];
  }
}

/** Return the 1st and the 99th percentile of a sample of the intensities that are loaded. */
function robustRange(scan: Volume): [number, number] {
  const { slope, intercept } = scan;
  const data = scan.isComplete ? scan.data : sliceOf(scan, 0, middleOf(scan.shape)[2]);
  const step = Math.max(1, Math.floor(data.length / 20000));
  const sample = Float64Array.from(
    { length: Math.ceil(data.length / step) },
    (_, i) => data[i * step]! * slope + intercept,
  ).sort();
  const [low, high] = [sample[Math.floor(sample.length * 0.01)]!, sample[Math.floor(sample.length * 0.99)]!];
  return high > low ? [low, high] : [low, low + 1];
}
