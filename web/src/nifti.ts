/** The part of NIfTI-1 that the server sends: uncompressed, little endian, axes in the order closest to RAS. */

export type Voxels =
  Uint8Array<ArrayBuffer> | Int16Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Float32Array<ArrayBuffer>;
export type Triple = [number, number, number];

/** A scan or a label map. The first axis varies fastest in `data`. */
export interface Volume {
  shape: Triple;
  spacing: Triple;
  data: Voxels;
  slope: number;
  intercept: number;
  /** Whether all voxels are there. */
  isComplete: boolean;
}

export const HEADER_BYTES = 352;
const UINT8 = 2;
const INT16 = 4;
const FLOAT32 = 16;
const UINT16 = 512;

/** Return the volume in these bytes, without a copy of the voxels. Raise an error if the format is another one. */
export function readNifti(bytes: ArrayBuffer): Volume {
  const view = new DataView(bytes);
  if (bytes.byteLength < HEADER_BYTES || view.getInt32(0, true) !== 348) throw new Error("this is not a NIfTI-1 file");
  const shape = [0, 1, 2].map((axis) => Math.max(1, view.getInt16(42 + 2 * axis, true))) as Triple;
  const spacing = [0, 1, 2].map((axis) => view.getFloat32(80 + 4 * axis, true) || 1) as Triple;
  const slope = view.getFloat32(112, true);
  const data = voxels(bytes, view.getInt16(70, true), view.getFloat32(108, true), shape[0] * shape[1] * shape[2]);
  const isScaled = Number.isFinite(slope) && slope !== 0;
  return {
    shape,
    spacing,
    data,
    slope: isScaled ? slope : 1,
    intercept: isScaled ? view.getFloat32(116, true) : 0,
    isComplete: true,
  };
}

function voxels(bytes: ArrayBuffer, datatype: number, offset: number, count: number): Voxels {
  if (datatype === UINT8) return new Uint8Array(bytes, offset, count);
  if (datatype === INT16) return new Int16Array(bytes, offset, count);
  if (datatype === UINT16) return new Uint16Array(bytes, offset, count);
  if (datatype === FLOAT32) return new Float32Array(bytes, offset, count);
  throw new Error(`voxel type ${datatype} is not supported`);
}

/** Return a label map as bytes. Raise an error if it does not have the shape of the scan. */
export function readLabels(bytes: ArrayBuffer, shape: Triple): Uint8Array<ArrayBuffer> {
  const volume = readNifti(bytes);
  if (volume.shape.join() !== shape.join()) throw new Error(`the label map has the shape ${volume.shape.join(" x ")}`);
  if (!(volume.data instanceof Uint8Array)) throw new Error("the label map is not stored as bytes");
  return volume.data;
}

/** Return an 8-bit volume as the bytes of a NIfTI file. */
export function writeNifti(shape: Triple, spacing: Triple, data: Uint8Array): ArrayBuffer {
  const bytes = new ArrayBuffer(HEADER_BYTES + data.length);
  const view = new DataView(bytes);
  view.setInt32(0, 348, true);
  view.setInt16(40, 3, true);
  for (let axis = 0; axis < 7; axis++) view.setInt16(42 + 2 * axis, shape[axis] ?? 1, true);
  view.setInt16(70, UINT8, true);
  view.setInt16(72, 8, true);
  view.setFloat32(76, 1, true);
  for (let axis = 0; axis < 3; axis++) {
    view.setFloat32(80 + 4 * axis, spacing[axis]!, true);
    view.setFloat32(280 + 16 * axis + 4 * axis, spacing[axis]!, true);
  }
  view.setFloat32(108, HEADER_BYTES, true);
  view.setFloat32(112, 1, true);
  view.setInt16(254, 1, true);
  view.setUint32(344, 0x00312b6e, true);
  new Uint8Array(bytes).set(data, HEADER_BYTES);
  return bytes;
}
