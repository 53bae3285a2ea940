/** Controls of the overlays: layers, opacity and classes. */

import type { CaseDetails, ClassInfo, Layer } from "./api.ts";
import { checkbox, element, fill, section } from "./dom.ts";
import { DIFFERENCES, palettePixels } from "./palette.ts";
import type { LabelLayer, LayerStyle, PlaneView } from "./plane_view.ts";

const NAMES: Record<LabelLayer, string> = {
  draft: "Drawing",
  reference: "Reference",
  prediction: "Prediction",
  uncertainty: "Uncertainty",
  difference: "Difference",
};
const ORDER: readonly LabelLayer[] = ["draft", "reference", "prediction", "uncertainty", "difference"];
const CAN_OUTLINE: ReadonlySet<LabelLayer> = new Set(["draft", "reference", "prediction"]);

/** What the user chose for a layer. */
interface LayerChoice {
  isShown: boolean;
  isOutline: boolean;
}

/** The panel with layers and opacity. Choices are kept when another case is opened. */
export class LayerPanel {
  readonly node: HTMLElement;
  /** Called when a layer is shown that has not been loaded yet. */
  onNeeded: (layer: Layer) => void = () => undefined;
  readonly #view: PlaneView;
  readonly #rows = element("div", { className: "layers" });
  readonly #legend = element("ul", { className: "legend" });
  readonly #choices: Record<LabelLayer, LayerChoice> = {
    draft: { isShown: true, isOutline: false },
    reference: { isShown: true, isOutline: true },
    prediction: { isShown: true, isOutline: false },
    uncertainty: { isShown: false, isOutline: false },
    difference: { isShown: false, isOutline: false },
  };
  #available: LabelLayer[] = [];
  #areHidden = false;

  constructor(view: PlaneView, isAnnotating: boolean) {
    this.#view = view;
    if (isAnnotating) {
      this.#choices.prediction = { isShown: false, isOutline: true };
      this.#choices.reference = { isShown: false, isOutline: true };
    }
    const opacity = element("input", { type: "range", id: "opacity", min: "0", max: "100", value: "45" });
    opacity.addEventListener("input", () => view.setLayerOpacity(Number(opacity.value) / 100));
    view.setLayerOpacity(0.45);
    this.node = section(
      "Overlays",
      this.#rows,
      this.#legend,
      element(
        "div",
        { className: "slider" },
        element("label", { htmlFor: "opacity", textContent: "Opacity" }),
        opacity,
      ),
    );
  }

  /** Show the layers of a case. */
  setCase(details: CaseDetails, hasDraft: boolean): void {
    const present = new Set<LabelLayer>(details.layers);
    if (hasDraft) present.add("draft");
    this.#available = ORDER.filter((layer) => present.has(layer));
    this.node.hidden = this.#available.length === 0;
    this.#draw();
    this.#apply();
  }

  /** Apply the choices again, after the voxels of a layer were replaced. */
  refresh(): void {
    this.#apply();
  }

  /** Show or hide all overlays. */
  toggleAll(): void {
    this.#areHidden = !this.#areHidden;
    this.#draw();
    this.#apply();
  }

  #draw(): void {
    fill(this.#rows, ...this.#available.map((layer) => this.#row(layer)));
    const isShown = this.#available.includes("difference") && this.#choices.difference.isShown;
    fill(this.#legend, ...(isShown ? DIFFERENCES.map(({ name, color }) => legendEntry(name, color)) : []));
    this.node.classList.toggle("is-off", this.#areHidden);
  }

  #row(layer: LabelLayer): HTMLElement {
    const choice = this.#choices[layer];
    const shown = checkbox(NAMES[layer], choice.isShown && !this.#areHidden, (isShown) => {
      this.#areHidden = false;
      choice.isShown = isShown;
      this.#draw();
      this.#apply();
      this.#rows.querySelector<HTMLInputElement>(`[data-layer="${layer}"] input`)?.focus();
    });
    const row = element("div", { className: "layer" }, shown);
    row.dataset["layer"] = layer;
    if (CAN_OUTLINE.has(layer)) {
      const outline = checkbox("outline", choice.isOutline, (isOutline) => {
        choice.isOutline = isOutline;
        this.#apply();
      });
      outline.classList.add("minor");
      outline.querySelector("input")!.setAttribute("aria-label", `${NAMES[layer]}: outline only`);
      row.append(outline);
    }
    return row;
  }

  #apply(): void {
    for (const layer of ORDER) this.#view.setStyle(layer, this.#styleOf(layer));
    for (const layer of this.#available) {
      if (layer !== "draft" && this.#styleOf(layer) !== "hidden") this.onNeeded(layer);
    }
  }

  #styleOf(layer: LabelLayer): LayerStyle {
    const { isShown, isOutline } = this.#choices[layer];
    if (!isShown || this.#areHidden || !this.#available.includes(layer)) return "hidden";
    if (isOutline) return "outline";
    return layer === "draft" ? "both" : "filled";
  }
}

function legendEntry(name: string, color: string): HTMLLIElement {
  const swatch = element("span", { className: "swatch" });
  swatch.style.backgroundColor = color;
  return element("li", {}, swatch, name);
}

/** The list of classes with colors. In annotate mode, a class can be chosen for drawing. */
export class ClassPanel {
  readonly node: HTMLElement;
  onChoose: (value: number) => void = () => undefined;
  readonly #view: PlaneView;
  readonly #classes: ClassInfo[];
  readonly #canChoose: boolean;
  readonly #hidden = new Set<number>();
  readonly #rows = element("div", { className: "classes" });
  #chosen: number;

  constructor(view: PlaneView, classes: ClassInfo[], canChoose: boolean) {
    this.#view = view;
    this.#classes = classes.filter(({ value }) => value > 0 && value < 256);
    this.#canChoose = canChoose;
    this.#chosen = this.#classes[0]?.value ?? 1;
    this.node = section(canChoose ? "Class to draw" : "Classes", this.#rows);
    if (canChoose) {
      this.#rows.setAttribute("role", "radiogroup");
      this.#rows.setAttribute("aria-label", "Class to draw");
    }
    this.node.hidden = this.#classes.length === 0;
    this.#draw();
    view.setPalette(palettePixels(this.#classes, this.#hidden));
  }

  get chosen(): number {
    return this.#chosen;
  }

  /** Choose the class with this number in the list for drawing, or show or hide it if there is no drawing. */
  press(number: number): void {
    const entry = this.#classes[number - 1];
    if (entry === undefined) return;
    if (this.#canChoose) this.#choose(entry.value);
    else this.#toggle(entry.value);
  }

  #choose(value: number): void {
    this.#chosen = value;
    this.#draw();
    this.onChoose(value);
  }

  #toggle(value: number): void {
    if (!this.#hidden.delete(value)) this.#hidden.add(value);
    this.#view.setPalette(palettePixels(this.#classes, this.#hidden));
    this.#draw();
  }

  #draw(): void {
    const focused = document.activeElement?.id ?? "";
    fill(this.#rows, ...this.#classes.map((entry, i) => this.#row(entry, i + 1)));
    if (focused.startsWith("class-")) document.getElementById(focused)?.focus();
  }

  #row(entry: ClassInfo, number: number): HTMLElement {
    const swatch = element("span", { className: "swatch" });
    swatch.style.backgroundColor = entry.color ?? "transparent";
    const shortcut = number <= 9 ? element("kbd", { textContent: String(number) }) : null;
    const visible = element("input", {
      type: "checkbox",
      checked: !this.#hidden.has(entry.value),
      id: `class-shown-${entry.value}`,
    });
    visible.addEventListener("change", () => this.#toggle(entry.value));
    if (!this.#canChoose)
      return element(
        "label",
        { className: "class" },
        visible,
        swatch,
        element("span", { className: "class-name", textContent: entry.name }),
        shortcut,
      );
    visible.setAttribute("aria-label", `Show ${entry.name}`);
    visible.title = "Show this class";
    const radio = element("input", {
      type: "radio",
      name: "class",
      id: `class-${entry.value}`,
      checked: entry.value === this.#chosen,
    });
    radio.addEventListener("change", () => this.#choose(entry.value));
    const name = element(
      "label",
      { className: "class" },
      radio,
      swatch,
      element("span", { className: "class-name", textContent: entry.name }),
      shortcut,
    );
    return element("div", { className: "class-row" }, name, visible);
  }
}
