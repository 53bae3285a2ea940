/** Turns movements of the pointer over the planes into strokes. */

import {
  brushOffsets,
  drawLine,
  fillPolygon,
  fillRegion,
  onPlane,
  planeAxes,
  type Point,
  type Slice,
} from "./drawing.ts";
import { Edit, type Change, type Draft } from "./edit.ts";
import type { PlanePoint } from "./plane_view.ts";
import { axisOf } from "./slices.ts";
import type { Stage } from "./stage.ts";
import { element } from "./dom.ts";
import type { ToolPanel } from "./tools.ts";

/** Long strokes are saved in parts while they are drawn, so that a crash loses no more than this time. */
const AUTOSAVE_MS = 2000;

interface ActiveStroke {
  pointer: number;
  /** Timer that saves parts of the stroke. A short stroke is saved in one piece, so that one undo removes it. */
  timer: number;
  edit: Edit;
  slice: Slice;
  tile: number;
  last: Point;
  corners: Point[];
  brush: Point[];
  value: number;
  isOutline: boolean;
}

/** Draws with the chosen tool and class. The left button draws, other buttons keep their meaning. */
export class DrawingPointer {
  /** Called with each finished stroke and the slice it was drawn on. */
  onChange: (change: Change, slice: Slice) => void = () => undefined;
  /** Called with a hint, if a click has no effect. */
  onHint: (text: string) => void = () => undefined;
  /** Returns the draft, or null if drawing is not possible now. */
  readonly #draft: () => Draft | null;
  readonly #stage: Stage;
  readonly #tools: ToolPanel;
  readonly #value: () => number;
  readonly #cursor = element("div", { className: "cursor", hidden: true });
  #stroke: ActiveStroke | null = null;

  constructor(stage: Stage, tools: ToolPanel, draft: () => Draft | null, value: () => number) {
    this.#stage = stage;
    this.#tools = tools;
    this.#draft = draft;
    this.#value = value;
    stage.frame.append(this.#cursor);
    const canvas = stage.canvas;
    const frame = stage.frame;
    frame.addEventListener("pointerdown", (event) => this.#down(event), { capture: true });
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const type of ["pointerup", "pointercancel"] as const) {
      canvas.addEventListener(type, (event) => {
        if (event.pointerId === this.#stroke?.pointer) this.finish();
      });
    }
    canvas.addEventListener("pointerleave", () => (this.#cursor.hidden = true));
    for (const type of ["mousedown", "mousemove", "mouseup", "touchstart", "touchmove", "touchend"]) {
      frame.addEventListener(type, (event) => this.#hideFromNiiVue(event), { capture: true });
    }
  }

  /** End the current stroke, as if the button was released. */
  finish(): void {
    const stroke = this.#stroke;
    if (stroke === null) return;
    this.#stroke = null;
    clearInterval(stroke.timer);
    if (stroke.isOutline) fillPolygon(stroke.edit, stroke.slice, stroke.corners, stroke.value);
    this.#show(stroke.edit);
    this.#report(stroke.edit, stroke.slice);
  }

  /** Adapt the cursor to the tool. */
  refreshCursor(): void {
    this.#cursor.hidden = true;
    this.#stage.canvas.style.cursor = this.#tools.tool === "navigate" ? "" : "crosshair";
  }

  /** Keep NiiVue from moving the crosshair while the user draws. */
  #hideFromNiiVue(event: Event): void {
    const isPress = event instanceof MouseEvent && event.type === "mousedown" && event.button === 0 && !event.shiftKey;
    const isDrawing = this.#stroke !== null || isPress || event.type.startsWith("touch");
    if (event.target === this.#stage.canvas && this.#tools.tool !== "navigate" && isDrawing && this.#draft() !== null) {
      event.stopPropagation();
    }
  }

  #down(event: PointerEvent): void {
    const draft = this.#draft();
    if (
      event.target !== this.#stage.canvas ||
      event.button !== 0 ||
      event.shiftKey ||
      draft === null ||
      this.#tools.tool === "navigate"
    )
      return;
    if (this.#stroke !== null) return; // a second finger
    const point = this.#stage.view.pointAt(event.offsetX, event.offsetY);
    if (point === null) return;
    this.#stage.canvas.focus({ preventScroll: true });
    this.#stage.canvas.setPointerCapture(event.pointerId);
    if (this.#tools.tool === "fill") this.#fill(draft, point);
    else this.#begin(draft, point, event.pointerId);
  }

  #begin(draft: Draft, { plane, tile, voxel }: PlanePoint, pointer: number): void {
    const axis = axisOf(plane);
    const slice = { axis, position: voxel[axis] };
    const at = onPlane(voxel, axis);
    const { tool } = this.#tools;
    const isOutline = tool === "outline";
    const [u, v] = planeAxes(axis);
    const brush: Point[] = isOutline ? [[0, 0]] : brushOffsets(this.#tools.size, [draft.spacing[u], draft.spacing[v]]);
    const value = tool === "eraser" ? 0 : this.#value();
    this.#stroke = {
      pointer,
      timer: window.setInterval(() => this.#savePart(), AUTOSAVE_MS),
      edit: new Edit(draft),
      slice,
      tile,
      last: at,
      corners: [at],
      brush,
      value,
      isOutline,
    };
    drawLine(this.#stroke.edit, slice, at, at, brush, value);
    this.#show(this.#stroke.edit);
  }

  #fill(draft: Draft, { plane, voxel }: PlanePoint): void {
    const axis = axisOf(plane);
    const slice = { axis, position: voxel[axis] };
    const edit = new Edit(draft);
    if (!fillRegion(draft, edit, slice, onPlane(voxel, axis), this.#value())) {
      this.onHint("This region is not enclosed. Close its outline first.");
      return;
    }
    this.#show(edit);
    this.#report(edit, slice);
  }

  #move(event: PointerEvent): void {
    this.#moveCursor(event);
    const stroke = this.#stroke;
    if (stroke === null || stroke.pointer !== event.pointerId) return;
    for (const part of event.getCoalescedEvents?.() ?? [event]) this.#extend(stroke, part.offsetX, part.offsetY);
    if (event.getCoalescedEvents?.().length === 0) this.#extend(stroke, event.offsetX, event.offsetY);
    this.#show(stroke.edit);
  }

  /** Report the voxels that were drawn so far, and continue the stroke. */
  #savePart(): void {
    const stroke = this.#stroke;
    const draft = this.#draft();
    if (stroke === null || stroke.isOutline || draft === null) return;
    this.#report(stroke.edit, stroke.slice);
    stroke.edit = new Edit(draft);
  }

  #extend(stroke: ActiveStroke, x: number, y: number): void {
    const point = this.#stage.view.pointAt(x, y, stroke.tile);
    if (point === null) return;
    const at = onPlane(point.voxel, stroke.slice.axis);
    drawLine(stroke.edit, stroke.slice, stroke.last, at, stroke.brush, stroke.value);
    stroke.last = at;
    stroke.corners.push(at);
  }

  #show(edit: Edit): void {
    const draft = this.#draft();
    const box = edit.takeBox();
    if (draft !== null && box !== null) this.#stage.view.updateDraft(draft.labels, ...box);
  }

  #report(edit: Edit, slice: Slice): void {
    const change = edit.finish();
    if (change !== null) this.onChange(change, slice);
  }

  #moveCursor(event: PointerEvent): void {
    const { tool } = this.#tools;
    const draft = this.#draft();
    const point =
      draft === null || (tool !== "brush" && tool !== "eraser")
        ? null
        : this.#stage.view.pointAt(event.offsetX, event.offsetY);
    this.#cursor.hidden = point === null;
    if (point === null || draft === null) return;
    const [u, v] = planeAxes(axisOf(point.plane));
    const size = Math.max(
      4,
      this.#tools.size * Math.min(draft.spacing[u], draft.spacing[v]) * this.#stage.view.scaleOf(point.tile),
    );
    Object.assign(this.#cursor.style, {
      width: `${size}px`,
      height: `${size}px`,
      left: `${event.offsetX - size / 2}px`,
      top: `${event.offsetY - size / 2}px`,
    });
  }
}
