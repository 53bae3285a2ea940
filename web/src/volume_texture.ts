/** Textures of volumes whose voxels the slice shader reads as they are. */

import type { Triple, Voxels } from "./nifti.ts";
import type { ScanSampler } from "./slice_shader.ts";

interface Format {
  internal: number;
  format: number;
  type: number;
  sampler: ScanSampler;
}

function formatOf(gl: WebGL2RenderingContext, data: Voxels): Format {
  if (data instanceof Uint8Array) {
    return { internal: gl.R8UI, format: gl.RED_INTEGER, type: gl.UNSIGNED_BYTE, sampler: "usampler3D" };
  }
  if (data instanceof Uint16Array) {
    return { internal: gl.R16UI, format: gl.RED_INTEGER, type: gl.UNSIGNED_SHORT, sampler: "usampler3D" };
  }
  if (data instanceof Int16Array) {
    return { internal: gl.R16I, format: gl.RED_INTEGER, type: gl.SHORT, sampler: "isampler3D" };
  }
  return { internal: gl.R32F, format: gl.RED, type: gl.FLOAT, sampler: "sampler3D" };
}

/** Return the sampler type that the shader needs for these voxels. */
export function samplerOf(data: Voxels): ScanSampler {
  if (data instanceof Uint8Array || data instanceof Uint16Array) return "usampler3D";
  return data instanceof Int16Array ? "isampler3D" : "sampler3D";
}

/** Return a new texture with these voxels, bound to the texture unit. */
export function uploadVolume(gl: WebGL2RenderingContext, unit: number, shape: Triple, data: Voxels): WebGLTexture {
  const texture = createVolume(gl, unit, shape, data);
  uploadBox(gl, [0, 0, 0], shape, data);
  return texture;
}

/** Return a new texture for voxels of this type, bound to the texture unit. All voxels are 0. */
export function createVolume(gl: WebGL2RenderingContext, unit: number, shape: Triple, data: Voxels): WebGLTexture {
  const texture = gl.createTexture();
  gl.activeTexture(gl.TEXTURE0 + unit);
  gl.bindTexture(gl.TEXTURE_3D, texture);
  for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) {
    gl.texParameteri(gl.TEXTURE_3D, filter, gl.NEAREST);
  }
  gl.texStorage3D(gl.TEXTURE_3D, 1, formatOf(gl, data).internal, ...shape);
  return texture;
}

/** Copy the voxels of a box to the texture that is bound to the active unit. */
export function uploadBox(gl: WebGL2RenderingContext, low: Triple, size: Triple, data: Voxels): void {
  const { format, type } = formatOf(gl, data);
  gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
  gl.texSubImage3D(gl.TEXTURE_3D, 0, ...low, ...size, format, type, data);
}

/** Copy the voxels of a box from memory to a label texture that is bound to the unit. */
export function updateBox(
  gl: WebGL2RenderingContext,
  unit: number,
  shape: Triple,
  data: Uint8Array,
  low: Triple,
  high: Triple,
): void {
  gl.activeTexture(gl.TEXTURE0 + unit);
  gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
  gl.pixelStorei(gl.UNPACK_ROW_LENGTH, shape[0]);
  gl.pixelStorei(gl.UNPACK_IMAGE_HEIGHT, shape[1]);
  gl.pixelStorei(gl.UNPACK_SKIP_PIXELS, low[0]);
  gl.pixelStorei(gl.UNPACK_SKIP_ROWS, low[1]);
  gl.pixelStorei(gl.UNPACK_SKIP_IMAGES, low[2]);
  const size = [0, 1, 2].map((axis) => high[axis]! - low[axis]! + 1) as Triple;
  gl.texSubImage3D(gl.TEXTURE_3D, 0, ...low, ...size, gl.RED_INTEGER, gl.UNSIGNED_BYTE, data);
  for (const parameter of [
    gl.UNPACK_ROW_LENGTH,
    gl.UNPACK_IMAGE_HEIGHT,
    gl.UNPACK_SKIP_PIXELS,
    gl.UNPACK_SKIP_ROWS,
    gl.UNPACK_SKIP_IMAGES,
  ]) {
    gl.pixelStorei(parameter, 0);
  }
}

/** Return a texture of 256 colors per row, bound to the texture unit. */
export function uploadPalette(
  gl: WebGL2RenderingContext,
  unit: number,
  rows: number,
  pixels: Uint8Array,
): WebGLTexture {
  const texture = gl.createTexture();
  gl.activeTexture(gl.TEXTURE0 + unit);
  gl.bindTexture(gl.TEXTURE_2D, texture);
  for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) {
    gl.texParameteri(gl.TEXTURE_2D, filter, gl.NEAREST);
  }
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, rows, 0, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
  return texture;
}
