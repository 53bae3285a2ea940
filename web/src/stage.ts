/** The middle of the page: planes, rendering, buttons and the position under the crosshair. */

import type { CaseDetails, ClassInfo } from "./api.ts";
import { button, element } from "./dom.ts";
import { indexOf } from "./drawing.ts";
import type { Volume } from "./nifti.ts";
import { PlaneView, type Arrangement } from "./plane_view.ts";
import { Rendering } from "./rendering.ts";
import { axisOf, type Plane } from "./slices.ts";

const PLANE_NAMES: Record<Plane, string> = { 0: "Axial", 1: "Coronal", 2: "Sagittal" };
const ARRANGEMENTS: readonly [Arrangement, string][] = [
  [0, "Axial"],
  [1, "Coronal"],
  [2, "Sagittal"],
  ["all", "All planes"],
];

/** A label map that the position line and the rendering use. */
export interface NamedLabels {
  name: string;
  labels: Uint8Array;
}

/** The canvas with its buttons. */
export class Stage {
  readonly node: HTMLElement;
  readonly view = new PlaneView();
  readonly canvas = element("canvas", {
    id: "planes",
    "aria-label": "Slices of the scan. Arrow keys change the slice.",
    role: "img",
  });
  readonly frame = element("div", { className: "frame" });
  /** Returns the label maps whose classes are named at the crosshair. The first one is also rendered. */
  labelMaps: () => NamedLabels[] = () => [];
  readonly #toolbar = element("div", { className: "toolbar", role: "toolbar", "aria-label": "Planes" });
  readonly #buttons = new Map<Arrangement, HTMLButtonElement>();
  readonly #position = element("p", { className: "position" });
  readonly #hint = element("p", { className: "hint", hidden: true });
  readonly #corner = element("div", { className: "corner" });
  readonly #classes: ClassInfo[];
  #channel = element("select", { id: "channel" });
  readonly #channelField = element(
    "div",
    { className: "field", hidden: true },
    element("label", { htmlFor: "channel", textContent: "Channel" }),
    this.#channel,
  );
  onChannel: (channel: number) => void = () => undefined;
  #arrangement: Arrangement = "all";
  #active: Plane = 0;
  #scan: Volume | null = null;
  #rendering: Rendering | null = null;
  #isRendering = false;
  #isScanShown = true;
  #is2d = false;
  #loaded = 0;

  constructor(classes: ClassInfo[]) {
    this.#classes = classes;
    for (const [arrangement, name] of ARRANGEMENTS) {
      const control = button(name, () => this.arrange(arrangement));
      this.#buttons.set(arrangement, control);
      this.#toolbar.append(control);
    }
    this.#toolbar.append(this.#zoomButtons(), this.#channelField);
    this.#channel.addEventListener("change", () => this.onChannel(Number(this.#channel.value)));
    this.frame.append(this.canvas, this.#corner);
    this.node = element(
      "main",
      { className: "stage" },
      this.#toolbar,
      this.frame,
      element("div", { className: "under" }, this.#position, this.#hint),
    );
    this.canvas.addEventListener("pointermove", (event) => this.#activatePlane(event));
    this.frame.addEventListener("wheel", (event) => this.#wheel(event), { capture: true, passive: false });
    this.#drawCorner();
  }

  async start(): Promise<void> {
    await this.view.start(this.canvas);
    this.view.onLocationChange = () => this.showPosition();
  }

  get active(): Plane {
    return this.#arrangement === "all" ? this.#active : this.#arrangement;
  }

  /** Show the scan of a case, or its middle slices until all voxels are there. */
  show(scan: Volume, details: CaseDetails): void {
    this.#scan = scan;
    this.#loaded = 0;
    this.#is2d = details.is_2d;
    // A 2-D scan is shown as stored, so the sides of the patient are unknown.
    this.view.showScan(scan, details.window, details.is_placed && !details.is_2d);
    this.arrange(details.is_2d ? 0 : this.#arrangement);
    this.#hint.hidden = details.is_placed || details.is_2d;
    this.#hint.textContent = "Left and right are unknown: this scan has no orientation.";
    for (const control of this.#toolbar.querySelectorAll<HTMLButtonElement>(":scope > button")) {
      control.hidden = details.is_2d;
    }
    this.#setChannels(details.channels);
    this.showPosition();
    this.refreshRendering();
  }

  /** Show another channel of the same scan. */
  showChannel(scan: Volume, window: [number, number]): void {
    this.#scan = scan;
    this.#loaded = 0;
    this.view.showChannel(scan, window);
    this.showPosition();
  }

  /** Show axial slices of the scan that have arrived. */
  addSlices(loaded: number): void {
    this.view.addSlices(loaded);
    this.#loaded = loaded;
    this.showPosition();
  }

  /** Show one plane or all of them. */
  arrange(arrangement: Arrangement): void {
    this.#arrangement = arrangement;
    for (const [key, control] of this.#buttons) control.setAttribute("aria-pressed", String(key === arrangement));
    this.#corner.hidden = arrangement !== "all" || this.#is2d;
    this.view.arrange(arrangement);
    if (arrangement === "all") this.refreshRendering();
  }

  /** Move the active plane by a number of slices. */
  scroll(slices: number): void {
    const axis = axisOf(this.active);
    const voxel = this.view.voxel;
    voxel[axis] = Math.min(this.view.shape[axis] - 1, Math.max(0, voxel[axis] + slices));
    this.view.goTo(voxel);
  }

  /** Draw the rendering again after the labels or the scan have changed. */
  refreshRendering(): void {
    if (!this.#isRendering || this.#rendering === null || !this.#scan?.isComplete || this.#corner.hidden) return;
    const labels = this.labelMaps()[0]?.labels ?? null;
    void this.#rendering.show(this.#scan, this.view.window, labels, this.#classes, {
      isScan: this.#isScanShown,
      isPlaced: this.#hint.hidden,
    });
  }

  /** Write slice, intensity and labels at the crosshair. */
  showPosition(): void {
    if (this.#scan === null) return;
    const voxel = this.view.voxel;
    const axis = axisOf(this.active);
    const index = indexOf(this.#scan.shape, voxel);
    const parts = [
      this.#is2d ? "Picture" : `${PLANE_NAMES[this.active]} slice ${voxel[axis] + 1} of ${this.#scan.shape[axis]}`,
      `voxel ${voxel.join(", ")}`,
      voxel[2] < this.#loaded || this.#scan.isComplete
        ? `intensity ${this.#intensity(index)}`
        : `loading, ${Math.floor((100 * this.#loaded) / this.#scan.shape[2])} %`,
      ...this.labelMaps().map(({ name, labels }) => `${name}: ${this.#className(labels[index]!)}`),
    ];
    this.#position.textContent = parts.join("  ·  ");
  }

  #intensity(index: number): string {
    const value = this.#scan!.data[index]! * this.#scan!.slope + this.#scan!.intercept;
    return Number.isInteger(value) ? String(value) : value.toPrecision(4);
  }

  #className(value: number): string {
    return this.#classes.find((entry) => entry.value === value)?.name ?? String(value);
  }

  #setChannels(count: number): void {
    this.#channelField.hidden = count < 2;
    this.#channel.replaceChildren(
      ...Array.from({ length: count }, (_, i) => element("option", { value: String(i), textContent: String(i + 1) })),
    );
  }

  #zoomButtons(): HTMLElement {
    const zoom = (factor: number): void => this.view.zoom(factor);
    return element(
      "div",
      { className: "zoom", role: "group", "aria-label": "Zoom" },
      button("−", () => zoom(1 / 1.25), { "aria-label": "Zoom out", title: "Zoom out (-)" }),
      button("Fit", () => zoom(0), { "aria-label": "Fit to the window", title: "Fit to the window (0)" }),
      button("+", () => zoom(1.25), { "aria-label": "Zoom in", title: "Zoom in (+)" }),
    );
  }

  /** Let the arrow keys move the plane under the pointer. */
  #activatePlane(event: PointerEvent): void {
    const point = this.view.pointAt(event.offsetX, event.offsetY);
    if (point === null || point.plane === this.#active) return;
    this.#active = point.plane;
    this.showPosition();
  }

  #wheel(event: WheelEvent): void {
    if (!event.ctrlKey || event.target !== this.canvas) return;
    event.preventDefault();
    event.stopPropagation();
    this.view.zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  }

  #drawCorner(): void {
    const start = button("Render in 3-D", () => this.#startRendering());
    this.#corner.replaceChildren(start);
  }

  #startRendering(): void {
    const canvas = element("canvas", { id: "rendering", "aria-label": "3-D rendering. Drag to rotate.", role: "img" });
    const scan = element("input", { type: "checkbox", checked: this.#isScanShown });
    scan.addEventListener("change", () => {
      this.#isScanShown = scan.checked;
      this.refreshRendering();
    });
    const update = button("Update", () => this.refreshRendering(), { title: "Render the current labels" });
    const close = button("Close", () => this.#stopRendering());
    this.#corner.replaceChildren(
      element("div", { className: "canvas-box" }, canvas),
      element(
        "div",
        { className: "corner-bar" },
        element("label", { className: "check" }, scan, "scan"),
        update,
        close,
      ),
    );
    this.#rendering = new Rendering(canvas);
    this.#isRendering = true;
    this.refreshRendering();
  }

  #stopRendering(): void {
    this.#isRendering = false;
    this.#rendering = null;
    this.#drawCorner();
  }
}
