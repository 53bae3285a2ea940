/** Colors of the overlays as rows of a texture of 256 colors. */

import type { ClassInfo } from "./api.ts";
import { ROWS } from "./slice_shader.ts";

/** The kinds of difference between reference and prediction, with their value in the difference map. */
export const DIFFERENCES = [
  { value: 1, name: "missed", color: "#ff4fd8" },
  { value: 2, name: "extra", color: "#2fe6ff" },
  { value: 3, name: "other class", color: "#fff04a" },
] as const;

/** Colors of the uncertainty from 0 to 1. */
const HEAT: readonly [number, number, number][] = [
  [20, 11, 53],
  [101, 21, 110],
  [187, 55, 84],
  [249, 142, 9],
  [252, 255, 164],
];

/** Return red, green and blue of a color such as `#e69f00`. */
export function rgb(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** Return the color of an uncertainty between 0 and 1. */
export function heat(value: number): [number, number, number] {
  const place = Math.min(Math.max(value, 0), 1) * (HEAT.length - 1);
  const low = Math.min(Math.floor(place), HEAT.length - 2);
  const part = place - low;
  return [0, 1, 2].map((i) => Math.round(HEAT[low]![i]! * (1 - part) + HEAT[low + 1]![i]! * part)) as [
    number,
    number,
    number,
  ];
}

/** Return the pixels of the palette texture. Hidden classes are transparent. */
export function palettePixels(classes: ClassInfo[], hidden: ReadonlySet<number>): Uint8Array<ArrayBuffer> {
  const pixels = new Uint8Array(256 * ROWS.count * 4);
  const set = (row: number, value: number, color: [number, number, number], alpha: number): void =>
    pixels.set([...color, alpha], (row * 256 + value) * 4);
  for (const { value, color } of classes) {
    if (color !== null && value < 256) set(ROWS.classes, value, rgb(color), hidden.has(value) ? 0 : 255);
  }
  for (const { value, color } of DIFFERENCES) set(ROWS.difference, value, rgb(color), 255);
  for (let value = 0; value < 256; value++) {
    set(ROWS.uncertainty, value, heat(value / 255), Math.min(255, Math.round(value * 1.4)));
  }
  return pixels;
}
