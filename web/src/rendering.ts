/** The 3-D rendering: labels as colored surfaces inside the translucent scan. It is created when it is first shown. */

import { Niivue, NVImage, SLICE_TYPE } from "@niivue/niivue";

import type { ClassInfo } from "./api.ts";
import { writeNifti, type Volume } from "./nifti.ts";
import { rgb } from "./palette.ts";
import { coarseGrid, type CoarseGrid } from "./rendering_grid.ts";

/** A second NiiVue scene for the rendering. */
export class Rendering {
  readonly #scene: Niivue;
  readonly #started: Promise<unknown>;
  /** Number of calls of `show`. Only the latest call has an effect. */
  #requests = 0;

  constructor(canvas: HTMLCanvasElement) {
    this.#scene = new Niivue({
      backColor: [0, 0, 0, 1],
      sliceType: SLICE_TYPE.RENDER,
      show3Dcrosshair: false,
      isOrientCube: true,
      dragAndDropEnabled: false,
      loadingText: "",
      logLevel: "error",
      crosshairWidth: 0,
    });
    this.#started = this.#scene.attachToCanvas(canvas, false);
  }

  /** Render a scan with labels. The scan is drawn with the intensities of the window. */
  async show(
    scan: Volume,
    window: [number, number],
    labels: Uint8Array | null,
    classes: ClassInfo[],
    shown: { isScan: boolean; isPlaced: boolean },
  ): Promise<void> {
    const request = ++this.#requests;
    await this.#started;
    const grid = coarseGrid(scan.shape, scan.spacing);
    const image = await imageOf(grid, grayValues(scan, window, grid), "scan.nii");
    const overlay = labels === null ? null : await labelImage(grid, labels, classes);
    if (request !== this.#requests) return;
    this.#scene.volumes = [];
    this.#scene.opts.isOrientCube = shown.isPlaced;
    image.opacity = shown.isScan ? (overlay === null ? 1 : 0.22) : 0;
    this.#scene.addVolume(image);
    if (overlay !== null) this.#scene.addVolume(overlay);
    await this.#scene.setVolumeRenderIllumination(overlay === null ? 0.6 : 0.3);
  }
}

function grayValues(scan: Volume, [low, high]: [number, number], grid: CoarseGrid): Uint8Array {
  const scale = 255 / (high - low);
  return Uint8Array.from(grid.indices, (index) => {
    const value = scan.data[index]! * scan.slope + scan.intercept;
    return Math.min(255, Math.max(0, Math.round((value - low) * scale)));
  });
}

function imageOf(grid: CoarseGrid, data: Uint8Array, name: string): Promise<NVImage> {
  const load = NVImage.new as (
    bytes: ArrayBuffer,
    name: string,
    map: string,
    opacity: number,
    pair: null,
    low: number,
    high: number,
  ) => Promise<NVImage>;
  return load(writeNifti(grid.shape, grid.spacing, data), name, "gray", 1, null, 0, 255);
}

async function labelImage(grid: CoarseGrid, labels: Uint8Array, classes: ClassInfo[]): Promise<NVImage> {
  const small = Uint8Array.from(grid.indices, (index) => labels[index]!);
  const image = await imageOf(grid, small, "labels.nii");
  const table = { R: [0], G: [0], B: [0], A: [0], I: [0], labels: [""] };
  for (const { value, color } of classes) {
    if (color === null) continue;
    const [red, green, blue] = rgb(color);
    table.R[value] = red;
    table.G[value] = green;
    table.B[value] = blue;
    table.A[value] = 255;
  }
  const count = table.R.length;
  for (const name of ["R", "G", "B", "A"] as const) {
    table[name] = Array.from({ length: count }, (_, i) => table[name][i] ?? 0);
  }
  table.I = Array.from({ length: count }, (_, i) => i);
  table.labels = table.I.map(String);
  image.setColormapLabel(table);
  return image;
}
