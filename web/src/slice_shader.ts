/**
 * The fragment shader of the slices.
 *
 * NiiVue converts a scan and its overlays to RGBA volumes before it draws a slice, and repeats this for each change of
 * the window. Without a fast GPU, that takes many seconds for a CT. This shader reads the voxels as they are and does
 * the same work for the visible pixels only. Of the scan, it needs only the slices at the crosshair. Labels are read with
 * texelFetch, so no label is ever interpolated.
 */

/** Texture units of the volumes. NiiVue uses the units 0 to 8 for drawing slices. */
export const UNITS = {
  palette: 9,
  scan: 10,
  reference: 11,
  prediction: 12,
  uncertainty: 13,
  difference: 14,
  draft: 15,
} as const;

/** Rows of the palette texture. */
export const ROWS = { classes: 0, difference: 1, uncertainty: 2, count: 3 } as const;

export type ScanSampler = "usampler3D" | "isampler3D" | "sampler3D";

/** Return the shader for scans of one voxel type. */
export function sliceShader(sampler: ScanSampler): string {
  return `#version 300 es
precision highp float;
precision highp int;
// the slices at the crosshair in three layers: axial, coronal, sagittal
uniform highp ${sampler} scan;
uniform highp usampler3D reference;
uniform highp usampler3D prediction;
uniform highp usampler3D uncertainty;
uniform highp usampler3D difference;
uniform highp usampler3D draft;
uniform highp sampler2D palette;
uniform int axCorSag;
uniform ivec3 size;
uniform vec2 window;
uniform vec2 scaling;
uniform bool isSmooth;
uniform float layerOpacity;
uniform float lineWidth;
// 0: hidden, 1: filled, 2: outline, 3: filled with an outline
uniform ivec3 labelStyles;
uniform ivec2 mapStyles;
in vec3 texPos;
out vec4 color;

ivec3 voxelAt(vec3 position, ivec3 size) {
  return clamp(ivec3(floor(position * vec3(size))), ivec3(0), size - 1);
}

ivec3 texelOf(ivec3 voxel) {
  return axCorSag == 0 ? ivec3(voxel.xy, 0) : axCorSag == 1 ? ivec3(voxel.xz, 1) : ivec3(voxel.yz, 2);
}

float intensityAt(ivec3 voxel) {
  return float(texelFetch(scan, texelOf(voxel), 0).r) * scaling.x + scaling.y;
}

float smoothIntensity(vec3 position, ivec3 u, ivec3 v) {
  vec3 corner = position * vec3(size) - 0.5;
  vec3 part = corner - floor(corner);
  ivec3 inPlane = u + v;
  ivec3 low = voxelAt(position, size) * (1 - inPlane) + ivec3(floor(corner)) * inPlane;
  ivec3 last = size - 1;
  float a = intensityAt(clamp(low, ivec3(0), last));
  float b = intensityAt(clamp(low + u, ivec3(0), last));
  float c = intensityAt(clamp(low + v, ivec3(0), last));
  float d = intensityAt(clamp(low + u + v, ivec3(0), last));
  float x = dot(part, vec3(u));
  float y = dot(part, vec3(v));
  return mix(mix(a, b, x), mix(c, d, x), y);
}

uint labelAt(highp usampler3D labels, vec3 position) {
  return texelFetch(labels, voxelAt(position, textureSize(labels, 0)), 0).r;
}

bool isEdge(highp usampler3D labels, uint label, vec3 dx, vec3 dy) {
  return labelAt(labels, texPos + dx) != label || labelAt(labels, texPos - dx) != label
    || labelAt(labels, texPos + dy) != label || labelAt(labels, texPos - dy) != label;
}

vec3 withLabels(vec3 below, highp usampler3D labels, int style, vec3 dx, vec3 dy) {
  if (style == 0) return below;
  uint label = labelAt(labels, texPos);
  vec4 paint = texelFetch(palette, ivec2(int(label), ${ROWS.classes}), 0);
  if (label == 0u || paint.a == 0.0) return below;
  if (style > 1 && isEdge(labels, label, dx, dy)) return mix(below, paint.rgb, max(layerOpacity, 0.9));
  return style == 2 ? below : mix(below, paint.rgb, layerOpacity);
}

vec3 withMap(vec3 below, highp usampler3D map, int row, int style) {
  if (style == 0) return below;
  vec4 paint = texelFetch(palette, ivec2(int(labelAt(map, texPos)), row), 0);
  return mix(below, paint.rgb, paint.a * layerOpacity);
}

void main() {
  ivec3 u = axCorSag == 2 ? ivec3(0, 1, 0) : ivec3(1, 0, 0);
  ivec3 v = axCorSag == 0 ? ivec3(0, 1, 0) : ivec3(0, 0, 1);
  float value = isSmooth ? smoothIntensity(texPos, u, v) : intensityAt(voxelAt(texPos, size));
  vec3 gray = vec3(clamp((value - window.x) / (window.y - window.x), 0.0, 1.0));
  vec3 dx = dFdx(texPos) * lineWidth;
  vec3 dy = dFdy(texPos) * lineWidth;
  vec3 shown = withMap(gray, uncertainty, ${ROWS.uncertainty}, mapStyles.x);
  shown = withLabels(shown, prediction, labelStyles.y, dx, dy);
  shown = withLabels(shown, draft, labelStyles.z, dx, dy);
  // where there is a difference, only its color is shown and not that of a class
  bool isDifferent = mapStyles.y != 0 && labelAt(difference, texPos) != 0u;
  shown = withMap(isDifferent ? gray : shown, difference, ${ROWS.difference}, mapStyles.y);
  shown = withLabels(shown, reference, labelStyles.x, dx, dy);
  color = vec4(shown, 1.0);
}
`;
}
