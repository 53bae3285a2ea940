/** The slices of a case: NiiVue with a shader that reads voxels directly. */

import { DRAG_MODE, Niivue, NVImage, SHOW_RENDER, SLICE_TYPE } from "@niivue/niivue";

import type { Layer } from "./api.ts";
import type { Triple, Volume } from "./nifti.ts";
import { ROWS, sliceShader, UNITS, type ScanSampler } from "./slice_shader.ts";
import { axisOf, middleOf, PLANES, sizeOf, sliceOf, type Plane } from "./slices.ts";
import { skipUnusedShaders } from "./unused_shaders.ts";
import {
  createVolume,
  samplerOf,
  updateBox,
  uploadBox,
  uploadPalette,
  uploadVolume,
} from "./volume_texture.ts";

export type LabelLayer = Layer | "draft";
export type LayerStyle = "hidden" | "filled" | "outline" | "both";
export type Arrangement = Plane | "all";

/** A point on a slice: the plane and the voxel under the pointer. */
export interface PlanePoint {
  tile: number;
  plane: Plane;
  voxel: Triple;
}

/** Time between two pictures of a scan that is still loading. */
const REDRAW_MS = 500;
const STYLES: Record<LayerStyle, number> = { hidden: 0, filled: 1, outline: 2, both: 3 };
const LAYERS: readonly LabelLayer[] = ["reference", "prediction", "uncertainty", "difference", "draft"];
const ALL_PLANES: { sliceType: SLICE_TYPE; position: [number, number, number, number] }[] = [
  { sliceType: SLICE_TYPE.AXIAL, position: [0, 0, 0.496, 0.494] },
  { sliceType: SLICE_TYPE.CORONAL, position: [0.504, 0, 0.496, 0.494] },
  { sliceType: SLICE_TYPE.SAGITTAL, position: [0, 0.506, 0.496, 0.494] },
];

/** NiiVue's slices, crosshair and coordinates, drawn by our slice shader. */
export class PlaneView extends Niivue {
  onWindow: (window: [number, number]) => void = () => undefined;
  #window: [number, number] = [0, 1];
  #scan: Volume | null = null;
  #sampler: ScanSampler | null = null;
  #styles = new Map<LabelLayer, LayerStyle>();
  #textures = new Map<number, WebGLTexture>();
  #opacity = 0.5;
  #isSmooth = true;
  /** The index of the slice in each layer of the texture of the scan. */
  #slices: number[] = [];
  #drawnAt = 0;
  #isPaused = false;

  constructor() {
    super({
      backColor: [0, 0, 0, 1],
      crosshairColor: [0.45, 0.72, 1, 0.75],
      fontColor: [1, 0.9, 0.35, 1], // a color, because letters lie on gray slices
      crosshairWidth: 0.3,
      crosshairWidthUnit: "percent",
      crosshairGap: 8,
      dragAndDropEnabled: false,
      isForceMouseClickToVoxelCenters: true,
      isRadiologicalConvention: true,
      isNearestInterpolation: true,
      isCornerOrientationText: false,
      fontMinPx: 12,
      fontSizeScaling: 0.3,
      loadingText: "",
      multiplanarShowRender: SHOW_RENDER.NEVER,
      logLevel: "error",
    });
  }

  /** Attach to the canvas and prepare empty textures. */
  async start(canvas: HTMLCanvasElement): Promise<void> {
    await this.attachToCanvas(canvas, false);
    this.setMouseEventConfig({
      leftButton: { primary: DRAG_MODE.crosshair },
      rightButton: DRAG_MODE.windowing,
      centerButton: DRAG_MODE.pan,
    });
    for (const layer of LAYERS) this.setLayer(layer, null);
    this.arrange("all");
  }

  override async init(): Promise<this> {
    const compileAll = skipUnusedShaders(this.gl);
    await super.init();
    compileAll();
    return this;
  }

  get shape(): Triple {
    return this.#scan?.shape ?? [1, 1, 1];
  }

  /** Show another scan. All layers must be set again. */
  showScan(scan: Volume, window: [number, number], isPlaced: boolean): void {
    this.#scan = scan;
    this.#window = window;
    const [x, y, z] = scan.shape;
    const layers: Triple = [Math.max(x, y), Math.max(y, z), PLANES.length];
    this.#setTexture(UNITS.scan, createVolume(this.gl, UNITS.scan, layers, scan.data));
    this.#slices = [];
    const sampler = samplerOf(scan.data);
    const hasOtherSampler = sampler !== this.#sampler;
    this.#sampler = sampler;
    this.opts.isOrientationTextVisible = isPlaced;
    this.scene.pan2Dxyzmm = [0, 0, 0, 1] as unknown as typeof this.scene.pan2Dxyzmm;
    this.volumes = [];
    if (hasOtherSampler) this.setCustomSliceShader(sliceShader(sampler));
    this.addVolume(imageOf(scan));
    this.goTo(middleOf(scan.shape));
  }

  /** Replace the voxels of the scan by another channel with the same shape. */
  showChannel(scan: Volume, window: [number, number]): void {
    const voxel = this.voxel;
    this.showScan(scan, window, this.opts.isOrientationTextVisible);
    this.goTo(voxel);
  }

  /** Show axial slices of the scan that have arrived. */
  addSlices(loaded: number): void {
    const { shape } = this.#scan!;
    // The middle slices are shown already. Other slices are not drawn each time, because that takes long without a GPU.
    const isDue = performance.now() - this.#drawnAt > REDRAW_MS || loaded === shape[2];
    if (!isDue || this.voxel.join() === middleOf(shape).join()) return;
    this.#slices = [];
    this.drawScene();
  }

  /** Wait until the GPU has drawn everything. */
  async drawn(): Promise<void> {
    const { gl } = this;
    const fence = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    while (fence !== null && gl.clientWaitSync(fence, 0, 0) === gl.TIMEOUT_EXPIRED) {
      await new Promise((done) => setTimeout(done, 10));
    }
    gl.deleteSync(fence);
  }

  /** Set the labels of a layer, or remove the layer. */
  setLayer(layer: LabelLayer, labels: Uint8Array<ArrayBuffer> | null): void {
    const shape: Triple = labels === null ? [1, 1, 1] : this.shape;
    this.#setTexture(UNITS[layer], uploadVolume(this.gl, UNITS[layer], shape, labels ?? new Uint8Array(1)));
    if (labels === null) this.#styles.delete(layer);
  }

  /** Show the changed voxels of the draft, all of them inside this box. */
  updateDraft(labels: Uint8Array, low: Triple, high: Triple): void {
    this.#bind(UNITS.draft);
    updateBox(this.gl, UNITS.draft, this.shape, labels, low, high);
    this.drawScene();
  }

  setStyle(layer: LabelLayer, style: LayerStyle): void {
    this.#styles.set(layer, style);
    this.drawScene();
  }

  setPalette(pixels: Uint8Array): void {
    this.#setTexture(UNITS.palette, uploadPalette(this.gl, UNITS.palette, ROWS.count, pixels));
    this.drawScene();
  }

  setLayerOpacity(opacity: number): void {
    this.#opacity = opacity;
    this.drawScene();
  }

  setSmooth(isSmooth: boolean): void {
    this.#isSmooth = isSmooth;
    this.drawScene();
  }

  get window(): [number, number] {
    return this.#window;
  }

  /** Show intensities from the first value (black) to the second (white). */
  setWindow(low: number, high: number): void {
    this.#window = [low, high > low ? high : low + Number.EPSILON * Math.max(1, Math.abs(low))];
    this.drawScene();
    this.onWindow(this.#window);
  }

  /** Show one plane, or all three. */
  arrange(arrangement: Arrangement): void {
    if (arrangement === "all") this.setCustomLayout(ALL_PLANES);
    else {
      this.clearCustomLayout();
      this.setSliceType(arrangement as SLICE_TYPE);
    }
  }

  get voxel(): Triple {
    const [x, y, z] = this.frac2vox(this.scene.crosshairPos);
    return [x!, y!, z!];
  }

  /** Move the crosshair to a voxel. */
  goTo(voxel: Triple): void {
    this.scene.crosshairPos = this.vox2frac(voxel as unknown as Parameters<Niivue["vox2frac"]>[0]);
    this.createOnLocationChange();
    this.drawScene();
  }

  /** Enlarge the planes around the crosshair, or return to the whole scan with a factor of 0. */
  zoom(factor: number): void {
    const zoom = factor === 0 ? 1 : Math.min(20, Math.max(1, this.scene.pan2Dxyzmm[3]! * factor));
    const at = this.frac2mm(this.scene.crosshairPos);
    const pan = [0, 1, 2].map((axis) => (zoom === 1 ? 0 : (1 - zoom) * at[axis]!));
    this.setPan2Dxyzmm([...pan, zoom] as unknown as Parameters<Niivue["setPan2Dxyzmm"]>[0]);
  }

  /** Return the voxel at a position on the canvas in CSS pixels, in this tile or in any. */
  pointAt(x: number, y: number, tile?: number): PlanePoint | null {
    const ratio = this.uiData.dpr ?? 1;
    const tiles = tile === undefined ? this.screenSlices.keys() : [tile];
    for (const index of tiles) {
      const plane = this.screenSlices[index]?.axCorSag as Plane | undefined;
      if (plane === undefined || plane > 2) continue;
      const fraction = this.screenXY2TextureFrac(x * ratio, y * ratio, index, true);
      if (fraction[0]! < 0) continue;
      const voxel = this.shape.map((size, axis) => Math.min(size - 1, Math.floor(fraction[axis]! * size))) as Triple;
      voxel[axisOf(plane)] = this.voxel[axisOf(plane)];
      return { tile: index, plane, voxel };
    }
    return null;
  }

  /** Return the position of a voxel's center on the canvas in CSS pixels, on the slice of this plane. */
  positionOf(voxel: Triple, plane: Plane): [number, number] | null {
    const position = this.frac2canvasPosWithTile(
      this.vox2frac(voxel as unknown as Parameters<Niivue["vox2frac"]>[0]),
      plane as SLICE_TYPE,
    );
    const ratio = this.uiData.dpr ?? 1;
    return position === null ? null : [position.pos[0]! / ratio, position.pos[1]! / ratio];
  }

  /** Return the number of CSS pixels per millimeter in a tile. */
  scaleOf(tile: number): number {
    const slice = this.screenSlices[tile];
    return slice === undefined ? 1 : Math.abs(slice.leftTopWidthHeight[2]! / slice.fovMM[0]!) / (this.uiData.dpr ?? 1);
  }

  /** Set up the geometry only, because the slice shader does not use NiiVue's converted volumes. */
  override refreshLayers(image: NVImage, layer: number): void {
    if (layer !== 0 || this.back === null || this.#scan === null) return;
    this.back.dims = image.dimsRAS!;
    this.back.pixDims = image.pixDimsRAS!;
    this.volumeObject3D = boxOf(this.#scan) as NonNullable<typeof this.volumeObject3D>;
    const { volScale, vox } = this.sliceScale(true);
    this.volScale = volScale;
    this.vox = vox;
    this.opts.is2DSliceShader = false;
  }

  /** Change the window by a drag. A drag to the right widens the window, and a drag up brightens the image. */
  override windowingHandler(x: number, y: number): void {
    const [low, high] = this.#window;
    const step = (high - low) / 300;
    const width = Math.max((high - low) * 1e-3, high - low + 2 * step * (x - this.uiData.windowX));
    const middle = (low + high) / 2 + step * (y - this.uiData.windowY);
    this.uiData.windowX = x;
    this.uiData.windowY = y;
    this.setWindow(middle - width / 2, middle + width / 2);
  }

  /** A double click must not change the window, which the side panel shows. */
  override resetBriCon(): void {}

  /** Make several changes and draw once, because each picture takes long without a GPU. */
  drawOnce(change: () => void): void {
    this.#isPaused = true;
    try {
      change();
    } finally {
      this.#isPaused = false;
    }
    this.drawScene();
  }

  override drawScene(): string | void {
    return this.#isPaused ? undefined : super.drawScene();
  }

  override drawSceneCore(): string | void {
    this.#drawnAt = performance.now();
    if (this.#scan !== null && this.customSliceShader !== null) {
      this.#uploadSlices(this.#scan);
      this.#setUniforms();
    }
    return super.drawSceneCore();
  }

  /** Copy the slices at the crosshair to the GPU, unless they are there already. */
  #uploadSlices(scan: Volume): void {
    this.#bind(UNITS.scan);
    for (const plane of PLANES) {
      const axis = axisOf(plane);
      const index = Math.min(scan.shape[axis] - 1, Math.max(0, this.voxel[axis]));
      if (index === this.#slices[plane]) continue;
      uploadBox(this.gl, [0, 0, plane], [...sizeOf(scan.shape, plane), 1], sliceOf(scan, plane, index));
      this.#slices[plane] = index;
    }
  }

  #bind(unit: number): void {
    this.gl.activeTexture(this.gl.TEXTURE0 + unit);
    this.gl.bindTexture(this.gl.TEXTURE_3D, this.#textures.get(unit) ?? null);
  }

  #setTexture(unit: number, texture: WebGLTexture): void {
    const old = this.#textures.get(unit);
    if (old !== undefined) this.gl.deleteTexture(old);
    this.#textures.set(unit, texture);
  }

  #setUniforms(): void {
    const { gl, customSliceShader } = this;
    const uniforms = customSliceShader!.uniforms;
    customSliceShader!.use(gl);
    for (const [name, unit] of Object.entries(UNITS)) {
      gl.activeTexture(gl.TEXTURE0 + unit);
      gl.bindTexture(unit === UNITS.palette ? gl.TEXTURE_2D : gl.TEXTURE_3D, this.#textures.get(unit) ?? null);
      gl.uniform1i(uniforms[name]!, unit);
    }
    const style = (layer: LabelLayer): number => STYLES[this.#styles.get(layer) ?? "hidden"];
    gl.uniform2f(uniforms["window"]!, ...this.#window);
    gl.uniform2f(uniforms["scaling"]!, this.#scan!.slope, this.#scan!.intercept);
    gl.uniform3i(uniforms["size"]!, ...this.#scan!.shape);
    gl.uniform1i(uniforms["isSmooth"]!, this.#isSmooth ? 1 : 0);
    gl.uniform1f(uniforms["layerOpacity"]!, this.#opacity);
    gl.uniform1f(uniforms["lineWidth"]!, this.uiData.dpr ?? 1);
    gl.uniform3i(uniforms["labelStyles"]!, style("reference"), style("prediction"), style("draft"));
    gl.uniform2i(uniforms["mapStyles"]!, style("uncertainty"), style("difference"));
  }
}

/** Return NiiVue's image of a scan. Its axes are straight, so NiiVue keeps the order of the voxels. */
function imageOf(scan: Volume): NVImage {
  const [x, y, z] = scan.spacing;
  const image = new NVImage();
  const header = {
    dims: [3, ...scan.shape, 1, 1, 1, 1],
    pixDims: [1, ...scan.spacing, 0, 0, 0, 0],
    affine: [
      [x, 0, 0, 0],
      [0, y, 0, 0],
      [0, 0, z, 0],
      [0, 0, 0, 1],
    ],
    scl_slope: scan.slope,
    scl_inter: scan.intercept,
    intent_code: 0,
    datatypeCode: 0,
  };
  image.hdr = header as unknown as NonNullable<NVImage["hdr"]>;
  image.img = scan.data as NonNullable<NVImage["img"]>;
  image.nFrame4D = 1;
  image.nVox3D = scan.data.length;
  image.calculateRAS();
  return image;
}

/** Return the extent of a scan in millimeters in the form of NiiVue's object for the 3-D scene. */
function boxOf(scan: Volume): object {
  const low = scan.spacing.map((size) => -0.5 * size);
  const high = scan.shape.map((count, axis) => (count - 0.5) * scan.spacing[axis]!);
  return {
    extentsMin: low,
    extentsMax: high,
    fieldOfViewDeObliqueMM: scan.shape.map((count, axis) => count * scan.spacing[axis]!),
    furthestVertexFromOrigin: Math.hypot(...high),
    originNegate: low.map((value, axis) => -(value + high[axis]!) / 2),
  };
}
