/** A curve over training steps as an SVG picture. */

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 460;
const HEIGHT = 190;
const MARGIN = { left: 52, right: 12, top: 28, bottom: 26 };

export type CurvePoint = [step: number, value: number];

/** Return round numbers that divide a range into about `count` parts. */
export function ticks(low: number, high: number, count: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Return at most `limit` points, each the mean of its neighborhood, so that long curves stay light. */
export function thin(points: readonly CurvePoint[], limit: number): CurvePoint[] {
  if (points.length <= limit) return [...points];
  const size = points.length / limit;
  return Array.from({ length: limit }, (_, i) => {
    const part = points.slice(Math.floor(i * size), Math.floor((i + 1) * size));
    return [part.at(-1)![0], part.reduce((sum, [, value]) => sum + value, 0) / part.length];
  });
}

/** Return points with later points added. A resumed training repeats steps, whose earlier points are dropped. */
export function extended(points: readonly CurvePoint[], later: readonly CurvePoint[]): CurvePoint[] {
  const first = later[0]?.[0] ?? Infinity;
  return [...points.filter(([step]) => step < first), ...later];
}

/** Return a number for an axis or a caption. */
export function short(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));
}

function shape(tag: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  if (text !== "") node.textContent = text;
  return node;
}

/** A curve that grows. */
export class Curve {
  readonly node = document.createElementNS(SVG, "svg");
  readonly name: string;
  readonly #hasDots: boolean;
  #points: CurvePoint[] = [];

  /** `hasDots` marks each point, for curves with few points. */
  constructor(name: string, hasDots: boolean) {
    this.name = name;
    this.#hasDots = hasDots;
    this.node.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.node.setAttribute("class", "curve");
    this.node.setAttribute("role", "img");
  }

  add(points: readonly CurvePoint[]): void {
    this.#points = extended(this.#points, points);
  }

  /** Draw the curve over all steps of the training, with lines where a stage begins. */
  draw(total: number, stages: readonly number[]): void {
    const last = this.#points.at(-1);
    if (last === undefined) return;
    const values = this.#points.map(([, value]) => value);
    const [low, high] = padded(Math.min(...values), Math.max(...values));
    const x = (step: number): number =>
      MARGIN.left + ((WIDTH - MARGIN.left - MARGIN.right) * step) / Math.max(1, total);
    const y = (value: number): number =>
      HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * (value - low)) / (high - low);
    const path = thin(this.#points, 400).map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
    this.node.setAttribute("aria-label", `${this.name}: ${short(last[1])} at step ${last[0]}`);
    this.node.replaceChildren(
      shape("text", { x: MARGIN.left, y: 15, class: "name" }, this.name),
      shape("text", { x: WIDTH - MARGIN.right, y: 15, "text-anchor": "end", class: "latest" }, short(last[1])),
      ...ticks(low, high, 4).flatMap((value) => [
        shape("line", { x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: y(value), y2: y(value), class: "grid" }),
        shape("text", { x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, short(value)),
      ]),
      ...ticks(0, total, 5).map((step) =>
        shape("text", { x: x(step), y: HEIGHT - 8, "text-anchor": "middle" }, String(step)),
      ),
      ...stages.map((step) =>
        shape("line", { x1: x(step), x2: x(step), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, class: "border" }),
      ),
      shape("polyline", { points: path.join(" "), class: "means" }),
      ...(this.#hasDots
        ? this.#points.map(([step, value]) => shape("circle", { cx: x(step), cy: y(value), r: 2.6, class: "dot" }))
        : []),
    );
  }
}

function padded(low: number, high: number): [number, number] {
  const pad = high > low ? 0.06 * (high - low) : Math.max(1e-6, Math.abs(low) * 0.1);
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}
