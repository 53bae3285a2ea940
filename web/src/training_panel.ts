/** The button that trains with the new labels, and its progress. */

import { getTraining, startTraining, type Training } from "./api.ts";
import { button, duration, element, section } from "./dom.ts";

const POLL_MS = 1000;

/** Starts a training and shows its last lines of output and its result. */
export class TrainingPanel {
  readonly node: HTMLElement;
  readonly #button: HTMLButtonElement;
  readonly #finished: () => Promise<void>;
  readonly #state = element("p", { className: "quiet", role: "status" });
  readonly #lines = element("pre", {
    className: "output",
    hidden: true,
    tabIndex: 0,
    "aria-label": "Output of the training",
  });
  readonly #summary = element("p", { className: "notice good", hidden: true });

  /** `finished` is called when a training that was started here has finished. */
  constructor(finished: () => Promise<void>) {
    this.#finished = finished;
    this.#button = button("Retrain", () => void this.#start(), { title: "Train the network with the accepted labels" });
    this.node = section("Training", this.#button, this.#state, this.#lines, this.#summary);
    void this.#follow();
  }

  async #start(): Promise<void> {
    this.#button.disabled = true;
    this.#summary.hidden = true;
    try {
      await startTraining();
      if ((await this.#follow()) === "finished") await this.#finished();
    } catch (error) {
      this.#state.textContent = (error as Error).message;
      this.#button.disabled = false;
    }
  }

  /** Show the progress until no training runs. Return the final state. */
  async #follow(): Promise<Training["state"]> {
    for (;;) {
      const training = await getTraining().catch(() => null);
      if (training !== null) this.#show(training);
      if (training !== null && training.state !== "running") return training.state;
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }

  #show({ state, lines, seconds, run, summary }: Training): void {
    this.#button.disabled = state === "running";
    const where = run === null ? "" : `: ${run}`;
    const texts = {
      idle: "Trains with the labels that you accepted.",
      running: `Training, ${duration(seconds)}`,
      finished: `Finished in ${duration(seconds)}${where}`,
      failed: "The training failed.",
    };
    if (this.#state.textContent !== texts[state]) this.#state.textContent = texts[state];
    this.#lines.hidden = lines.length === 0;
    this.#lines.textContent = lines.join("\n");
    this.#lines.scrollTop = this.#lines.scrollHeight;
    this.#summary.hidden = summary === null;
    this.#summary.textContent = summary;
  }
}
