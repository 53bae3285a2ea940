/** Large scans: the middle slices are shown at once, and all other voxels as they arrive. */

import { getCenter, openVolume, type CaseDetails, type VoxelType } from "./api.ts";
import { HEADER_BYTES, type Volume, type Voxels } from "./nifti.ts";
import { fillMiddle } from "./slices.ts";

/** Smaller scans are loaded in one piece. */
const STREAMED_BYTES = 24 * 2 ** 20;
/** Slices are shown in groups of about this size. */
const GROUP_BYTES = 16 * 2 ** 20;

const TYPES = { uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, float32: Float32Array } as const;

/** Return whether a scan is large enough to be shown before all of its voxels are there. */
export function isStreamed({ shape, voxel_type }: CaseDetails): boolean {
  return shape[0] * shape[1] * shape[2] * TYPES[voxel_type].BYTES_PER_ELEMENT > STREAMED_BYTES;
}

/** Load the middle slices of a scan. All other voxels are 0. */
export async function loadMiddle({ id, shape, spacing, voxel_type }: CaseDetails, channel: number): Promise<Volume> {
  const slices = voxelsOf(voxel_type, await getCenter(id, channel));
  const bytes = shape[0] * shape[1] * shape[2] * slices.BYTES_PER_ELEMENT;
  const data = voxelsOf(voxel_type, new ArrayBuffer(bytes));
  const scan: Volume = { shape, spacing, data, slope: 1, intercept: 0, isComplete: false };
  fillMiddle(scan, slices);
  return scan;
}

/** Load all voxels of a scan. `onSlices` is called with the number of axial slices that are there. */
export async function streamScan(
  scan: Volume,
  id: number,
  channel: number,
  signal: AbortSignal,
  onSlices: (loaded: number) => void,
): Promise<void> {
  await receive(scan, await openVolume(id, channel, signal), onSlices);
}

/** Write the voxels of a stream into a scan. Raise an error if the stream ends too early. */
export async function receive(
  scan: Volume,
  stream: ReadableStream<Uint8Array>,
  onSlices: (loaded: number) => void,
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
    shown = ready;
    onSlices(shown);
  }
  if (shown < scan.shape[2]) throw new Error("the scan was not loaded completely; open it again");
  scan.isComplete = true;
}

function voxelsOf(type: VoxelType, bytes: ArrayBuffer): Voxels {
  return new TYPES[type](bytes);
}
