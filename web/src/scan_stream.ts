/** Large scans: the middle slices are shown at once, and all other voxels as they arrive. */

import { getCenter, openVolume, type CaseDetails, type VoxelType } from "./api.ts";
import { HEADER_BYTES, type Triple, type Volume, type Voxels } from "./nifti.ts";

/** Smaller scans are loaded in one piece. */
const STREAMED_BYTES = 24 * 2 ** 20;
/** Slices are shown in groups of about this size. */
const GROUP_BYTES = 16 * 2 ** 20;

/** The three slices through the middle voxel. */
export interface Center {
  axial: Voxels;
  coronal: Voxels;
  sagittal: Voxels;
}

const TYPES = { uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, float32: Float32Array } as const;

/** Return whether a scan is large enough to be shown before all of its voxels are there. */
export function isStreamed({ shape, voxel_type }: CaseDetails): boolean {
  return shape[0] * shape[1] * shape[2] * TYPES[voxel_type].BYTES_PER_ELEMENT > STREAMED_BYTES;
}

/** Return a scan without its voxels. */
export function emptyScan({ shape, spacing, voxel_type }: CaseDetails): Volume {
  return {
    shape,
    spacing,
    data: voxelsOf(voxel_type, new ArrayBuffer(shape[0] * shape[1] * shape[2] * TYPES[voxel_type].BYTES_PER_ELEMENT)),
    slope: 1,
    intercept: 0,
    isComplete: false,
  };
}

/** Load the middle slices of a scan. */
export async function loadCenter({ id, shape, voxel_type }: CaseDetails, channel: number): Promise<Center> {
  return splitCenter(voxelsOf(voxel_type, await getCenter(id, channel)), shape);
}

/** Return the slices in the voxels that the server sends: axial, coronal and sagittal. */
export function splitCenter(all: Voxels, [x, y, z]: Triple): Center {
  const [first, second] = [x * y, x * y + x * z];
  return {
    axial: all.subarray(0, first),
    coronal: all.subarray(first, second),
    sagittal: all.subarray(second, second + y * z),
  };
}

/** Load all voxels of a scan. `onSlices` is called with the first and the number of the new axial slices. */
export async function streamScan(
  scan: Volume,
  id: number,
  channel: number,
  signal: AbortSignal,
  onSlices: (first: number, count: number) => void,
): Promise<void> {
  await receive(scan, await openVolume(id, channel, signal), onSlices);
}

/** Write the voxels of a stream into a scan. Raise an error if the stream ends too early. */
export async function receive(
  scan: Volume,
  stream: ReadableStream<Uint8Array>,
  onSlices: (first: number, count: number) => void,
): Promise<void> {
  const bytes = new Uint8Array(scan.data.buffer);
  const sliceBytes = bytes.length / scan.shape[2];
  let position = -HEADER_BYTES;
  let shown = 0;
  const reader = stream.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const skipped = Math.min(part.value.length, Math.max(0, -position));
    bytes.set(skipped === 0 ? part.value : part.value.subarray(skipped), Math.max(0, position));
    position += part.value.length;
    const ready = Math.max(0, Math.floor(position / sliceBytes));
    if (ready === shown || ((ready - shown) * sliceBytes < GROUP_BYTES && ready < scan.shape[2])) continue;
    onSlices(shown, ready - shown);
    shown = ready;
  }
  if (shown < scan.shape[2]) throw new Error("the scan was not loaded completely; open it again");
  scan.isComplete = true;
}

function voxelsOf(type: VoxelType, bytes: ArrayBuffer): Voxels {
  return new TYPES[type](bytes);
}
