/** Runs of changed voxels: how strokes are stored, undone and sent to the server. */

/** Voxels with consecutive indices that get the same value. */
export interface Run {
  first: number;
  length: number;
  value: number;
}

const BYTES_PER_RUN = 9;

/** Return the runs of voxels with these indices (in increasing order) and these values. */
export function runsOf(indices: ArrayLike<number>, values: ArrayLike<number>): Run[] {
  const runs: Run[] = [];
  let last: Run | undefined;
  for (let i = 0; i < indices.length; i++) {
    const index = indices[i]!;
    const value = values[i]!;
    if (last !== undefined && last.first + last.length === index && last.value === value) last.length++;
    else runs.push((last = { first: index, length: 1, value }));
  }
  return runs;
}

/** Write the values of the runs into the labels. */
export function applyRuns(labels: Uint8Array, runs: readonly Run[]): void {
  for (const { first, length, value } of runs) labels.fill(value, first, first + length);
}

/** Return the runs in the format of the server: 9 bytes each, little endian. */
export function encodeRuns(runs: readonly Run[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(runs.length * BYTES_PER_RUN);
  const view = new DataView(bytes.buffer);
  runs.forEach(({ first, length, value }, i) => {
    view.setUint32(i * BYTES_PER_RUN, first, true);
    view.setUint32(i * BYTES_PER_RUN + 4, length, true);
    view.setUint8(i * BYTES_PER_RUN + 8, value);
  });
  return bytes;
}

/** Return the runs in bytes that `encodeRuns` wrote. */
export function decodeRuns(bytes: Uint8Array): Run[] {
  if (bytes.length % BYTES_PER_RUN !== 0) throw new Error("the stroke is incomplete");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Array.from({ length: bytes.length / BYTES_PER_RUN }, (_, i) => ({
    first: view.getUint32(i * BYTES_PER_RUN, true),
    length: view.getUint32(i * BYTES_PER_RUN + 4, true),
    value: view.getUint8(i * BYTES_PER_RUN + 8),
  }));
}
