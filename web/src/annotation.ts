/** Annotation of the open case: draft, strokes, saving, and the decision about the case. */

import {
  type ApiError,
  finishCase,
  getDraft,
  getSession,
  OfflineError,
  postStroke,
  resetCase,
  type CaseDetails,
  type FinishAction,
  type Opened,
} from "./api.ts";
import { confirmDialog } from "./confirm.ts";
import { button, element } from "./dom.ts";
import { DrawingPointer } from "./drawing_pointer.ts";
import type { Slice } from "./drawing.ts";
import { boxOfRuns, Edit, type Change, type Draft } from "./edit.ts";
import { History } from "./history.ts";
import { interpolateSlices } from "./interpolation.ts";
import { control, shortcut, type Shortcut } from "./keyboard.ts";
import { Lease } from "./lease.ts";
import { readLabels } from "./nifti.ts";
import { applyRuns, decodeRuns, encodeRuns, type Run } from "./runs.ts";
import { SaveIndicator } from "./save_state.ts";
import { StrokeQueue, type Stroke } from "./stroke_queue.ts";
import { DatabaseStore, openDatabase, waitingCases } from "./stroke_store.ts";
import { tabId } from "./tab_id.ts";
import { ToolPanel } from "./tools.ts";
import type { ViewerPage } from "./viewer_page.ts";

const AXIS_NAMES = ["sagittal", "coronal", "axial"] as const;
const FINISHED: Record<FinishAction, string> = { accept: "Accepted", skip: "Skipped", reject: "Rejected" };

/** Everything that belongs to the open case. */
interface OpenCase {
  details: CaseDetails;
  /** Identifies the case in the browser's database. */
  key: string;
  draft: Draft;
  history: History;
  lease: Lease;
  queue: StrokeQueue;
  isWritable: boolean;
  /** Number of the last stroke in the loaded draft. */
  seq: number;
}

/** Adds drawing to the viewer's page. */
export class Annotation {
  readonly indicator = new SaveIndicator();
  readonly #page: ViewerPage;
  readonly #tab: string;
  readonly #database: IDBDatabase;
  readonly #tools: ToolPanel;
  readonly #pointer: DrawingPointer;
  readonly #banner = element("p", { className: "notice", role: "status", hidden: true });
  readonly #decision = element("div", {
    className: "decision",
    role: "group",
    "aria-label": "Decision about this case",
  });
  #case: OpenCase | null = null;
  /** The last two different slices of one plane that were drawn on, the latest first. */
  #drawnSlices: Slice[] = [];

  private constructor(page: ViewerPage, tab: string, database: IDBDatabase) {
    this.#page = page;
    this.#tab = tab;
    this.#database = database;
    this.#tools = new ToolPanel({
      undo: () => this.undo(),
      redo: () => this.redo(),
      interpolate: () => this.interpolate(),
      reset: () => void this.#reset(),
    });
    this.#pointer = new DrawingPointer(
      page.stage,
      this.#tools,
      () => (this.#case?.isWritable ? this.#case.draft : null),
      () => page.classes.chosen,
    );
    this.#pointer.onChange = (change, slice) => this.#finishStroke(change, slice);
    this.#pointer.onHint = (text) => page.notify(text);
    this.#tools.onTool = () => this.#pointer.refreshCursor();
    page.classes.node.after(this.#tools.node);
    this.#decision.append(
      button("Accept", () => void this.#finish("accept"), {
        className: "primary",
        title: "Save as the label of this scan and go on (Enter)",
      }),
      button("Skip", () => void this.#finish("skip"), { title: "Decide later" }),
      button("Reject", () => void this.#finish("reject"), { className: "danger", title: "This scan is unusable" }),
    );
    page.panel.prepend(this.#decision);
    page.stage.node.prepend(this.#banner);
    page.moreLabels = () =>
      this.#case === null || this.#case.draft.labels.length === 0
        ? []
        : [{ name: "drawing", labels: this.#case.draft.labels }];
    page.onShown = (details) => this.#open(details);
    page.onLeave = () => this.#leave();
    window.addEventListener("beforeunload", (event) => {
      if ((this.#case?.queue.waiting ?? 0) > 0) event.preventDefault();
    });
  }

  static async start(page: ViewerPage): Promise<Annotation> {
    return new Annotation(page, await tabId(), await openDatabase());
  }

  /** Return a case with strokes that have not reached the server, because their tab was closed, or null. */
  async interruptedCase(): Promise<number | null> {
    const waiting = await waitingCases(this.#database);
    return this.#page.session.cases.find(({ name }) => waiting.has(this.#keyOf(name)))?.id ?? null;
  }

  /** Return the draft of the open case. */
  get draft(): Draft | null {
    return this.#case?.draft ?? null;
  }

  undo(): void {
    const change = this.#writableCase()?.history.undo();
    if (change) this.#apply(change.undo);
  }

  redo(): void {
    const change = this.#writableCase()?.history.redo();
    if (change) this.#apply(change.redo);
  }

  /** Interpolate the chosen class between the last two slices that were drawn on. */
  interpolate(): void {
    const open = this.#writableCase();
    const slices = this.#slicesToInterpolate();
    if (open === null || slices === null) return;
    const edit = new Edit(open.draft);
    const [from, to] = slices;
    if (!interpolateSlices(open.draft, edit, from.axis, from.position, to.position, this.#page.classes.chosen)) {
      this.#page.notify("One of the two slices does not contain the chosen class.");
      return;
    }
    const box = edit.takeBox();
    const change = edit.finish();
    if (box === null || change === null) return;
    this.#page.stage.view.updateDraft(open.draft.labels, ...box);
    this.#record(open, change);
  }

  /** Return the shortcuts of the tools. */
  shortcuts(): Shortcut[] {
    return [
      shortcut("n b e o f", "Navigate, brush, eraser, outline, fill", (event) => this.#tools.press(event.key)),
      shortcut("[ ]", "Smaller or larger brush", (event) => this.#tools.resize(event.key === "]" ? 1 : -1)),
      shortcut("i", "Interpolate between the last two slices", () => this.interpolate()),
      shortcut("Ctrl+Z", "Undo", () => this.undo(), control("z", false)),
      shortcut("Ctrl+Y", "Redo (or Ctrl+Shift+Z)", () => this.redo(), control("y", false)),
      shortcut("Ctrl+Shift+Z", "", () => this.redo(), control("z", true)),
      shortcut("Enter", "Accept the drawing and go on", () => void this.#finish("accept")),
    ];
  }

  #writableCase(): OpenCase | null {
    return this.#case?.isWritable ? this.#case : null;
  }

  async #open(details: CaseDetails): Promise<void> {
    const key = this.#keyOf(details.name);
    const queue = this.#newQueue(details.id, key);
    const lease = new Lease(details.id, this.#tab, (opened) => this.#updateRights(opened));
    const draft: Draft = { labels: new Uint8Array(0), shape: details.shape, spacing: details.spacing };
    this.#case = { details, key, draft, history: new History(), lease, queue, isWritable: false, seq: 0 };
    this.#drawnSlices = [];
    this.#tools.setEnabled(false);
    this.#setBusy(true);
    const opened = await lease.start();
    await this.#load(this.#case, opened.writable);
  }

  #keyOf(name: string): string {
    return `${this.#page.session.key ?? this.#page.session.title}\n${name}`;
  }

  #newQueue(id: number, key: string): StrokeQueue {
    const send = async ({ seq, runs }: Stroke): Promise<number> => (await postStroke(id, this.#tab, seq, runs)).seq;
    const queue = new StrokeQueue(new DatabaseStore(this.#database, key, this.#tab), send);
    queue.onState = (state) => this.indicator.show(state);
    queue.onConflict = (error) => this.#stopAfterRefusal(queue, error);
    return queue;
  }

  /** Load the draft. A tab that may write also applies and sends the strokes that an earlier page has left. */
  async #load(open: OpenCase, isWritable: boolean): Promise<void> {
    const { bytes, seq } = await getDraft(open.details.id);
    if (this.#case !== open) return;
    open.draft.labels = readLabels(bytes, open.details.shape);
    open.seq = seq;
    open.history.clear();
    if (isWritable) {
      for (const stroke of await open.queue.resume(seq)) applyRuns(open.draft.labels, decodeRuns(stroke.runs));
    }
    if (this.#case !== open) return;
    open.isWritable = isWritable;
    this.#page.stage.view.setLayer("draft", open.draft.labels);
    this.#page.layers.refresh();
    this.#page.stage.refreshRendering();
    this.#refresh();
  }

  /** Load the draft again if this tab got or lost the right to draw, or if another tab has changed the draft. */
  async #updateRights(opened: Opened): Promise<void> {
    const open = this.#case;
    if (open === null) return;
    if (open.isWritable && !opened.writable) await this.#stopDrawing(open);
    const hasChanged = opened.writable !== open.isWritable || (!opened.writable && opened.seq !== open.seq);
    if (hasChanged) await this.#load(open, opened.writable);
  }

  /** Stop drawing because another tab has taken over the case. */
  async #stopDrawing(open: OpenCase): Promise<void> {
    this.#pointer.finish();
    open.isWritable = false;
    this.#refresh();
    await open.queue.giveUp();
    open.queue = this.#newQueue(open.details.id, open.key);
  }

  /** Stop drawing after the server refused a stroke. The lease then loads the draft again and sends what waits. */
  #stopAfterRefusal(queue: StrokeQueue, error: ApiError): void {
    const open = this.#case;
    if (open === null || open.queue !== queue) return;
    if (error.status !== 409) this.#page.notify(error.message);
    open.queue = this.#newQueue(open.details.id, open.key);
    open.isWritable = false;
    this.#refresh();
  }

  /** Close the case. Return false to stay, if the server does not have all strokes. */
  async #leave(): Promise<boolean> {
    this.#pointer.finish();
    const open = this.#case;
    if (open === null) return true;
    if (open.queue.waiting > 0) {
      await Promise.race([open.queue.flushed(), new Promise((done) => setTimeout(done, 2000))]);
    }
    if (open.queue.waiting > 0) {
      this.#page.notify("The last strokes of this case still wait for the server. Stay until they are saved.");
      return false;
    }
    open.lease.stop();
    open.queue.stop();
    this.#case = null;
    return true;
  }

  #finishStroke(change: Change, slice: Slice): void {
    const open = this.#writableCase();
    if (open === null) return;
    this.#page.notify("");
    this.#drawnSlices = [
      slice,
      ...this.#drawnSlices.filter((other) => other.axis === slice.axis && other.position !== slice.position),
    ].slice(0, 2);
    this.#record(open, change);
  }

  #record(open: OpenCase, change: Change): void {
    open.history.add(change);
    open.queue.add(encodeRuns(change.redo));
    this.#refresh();
  }

  #apply(runs: Run[]): void {
    const open = this.#writableCase()!;
    applyRuns(open.draft.labels, runs);
    open.queue.add(encodeRuns(runs));
    this.#page.stage.view.updateDraft(open.draft.labels, ...boxOfRuns(runs, open.draft.shape));
    this.#refresh();
  }

  /** Return the last two slices that were drawn on in order, or null if no slice is between them. */
  #slicesToInterpolate(): [Slice, Slice] | null {
    const [a, b] = this.#drawnSlices;
    if (a === undefined || b === undefined || Math.abs(a.position - b.position) < 2) return null;
    return a.position < b.position ? [a, b] : [b, a];
  }

  async #reset(): Promise<void> {
    const open = this.#writableCase();
    if (open === null) return;
    const isSure = await confirmDialog(
      "Start over?",
      "All changes are discarded. The drawing starts again from the prediction, or from the saved label map.",
      "Start over",
    );
    if (isSure) await this.#restart(open);
  }

  async #restart(open: OpenCase): Promise<void> {
    try {
      await open.queue.flushed();
      await resetCase(open.details.id, this.#tab, open.queue.last);
      this.#drawnSlices = [];
      await this.#load(open, true);
    } catch (error) {
      this.#showError(error);
    }
  }

  async #finish(action: FinishAction): Promise<void> {
    const open = this.#writableCase();
    if (open === null) return;
    this.#pointer.finish();
    if (
      action === "reject" &&
      !(await confirmDialog(
        "Reject this scan?",
        "The drawing is deleted, no label is written, and the scan is no longer suggested.",
        "Reject",
      ))
    )
      return;
    this.#setBusy(true);
    try {
      await open.queue.flushed();
      const { file, changed, next } = await finishCase(open.details.id, this.#tab, open.queue.last, action);
      await this.#showFinished(action, open.details.name, file, changed, next);
    } catch (error) {
      this.#showError(error);
    }
    this.#setBusy(false);
  }

  #showError(error: unknown): void {
    this.#page.notify(
      error instanceof OfflineError
        ? "The server does not answer. Try again when it is back."
        : String((error as Error).message),
    );
  }

  /** Show the ranking of a new network. A drawing without strokes starts again from its prediction. */
  async useNewNetwork(): Promise<void> {
    await this.#updateList();
    const open = this.#writableCase();
    if (open !== null && open.queue.last === 0) await this.#restart(open);
  }

  async #updateList(): Promise<void> {
    const { cases } = await getSession();
    this.#page.session.cases = cases;
    this.#page.list.update(cases);
  }

  /** Open the next case and say what happened to the finished case. */
  async #showFinished(
    action: FinishAction,
    name: string,
    file: string | null,
    changed: number,
    next: number | null,
  ): Promise<void> {
    await this.#updateList();
    if (next !== null) await this.#page.open(next);
    else if (this.#case !== null) await this.#load(this.#case, true);
    const saved = file === null ? "" : `, saved as ${file} (${changed} ${changed === 1 ? "voxel" : "voxels"} changed)`;
    this.#page.notify(`${FINISHED[action]}: ${name}${saved}.${next === null ? " All cases are done." : ""}`, true);
  }

  #setBusy(isBusy: boolean): void {
    for (const control of this.#decision.querySelectorAll("button")) {
      control.disabled = isBusy || !this.#case?.isWritable;
    }
  }

  #refresh(): void {
    const open = this.#case;
    if (open === null) return;
    this.#banner.hidden = open.isWritable;
    this.#banner.textContent =
      "This case is open in another tab. You can look, but not draw. This tab takes over when the other one is closed.";
    this.#tools.setEnabled(open.isWritable);
    this.#tools.setFlat(open.details.is_2d);
    this.#tools.setHistory(open.history.canUndo, open.history.canRedo);
    const slices = this.#slicesToInterpolate();
    this.#tools.setInterpolation(
      slices === null
        ? ""
        : `Interpolates ${AXIS_NAMES[slices[0].axis]} slices ${slices[0].position + 1} to ${slices[1].position + 1}.`,
    );
    this.#setBusy(false);
    this.#page.stage.node.dataset["writable"] = String(open.isWritable);
    this.#pointer.refreshCursor();
    this.#page.stage.showPosition();
  }
}
