/** The right to draw on a case. Only one tab has it at a time. */

import { openCase, type Opened } from "./api.ts";

const PERIOD = 3000;

/** Asks the server for a case again and again, until it is stopped. */
export class Lease {
  readonly #id: number;
  readonly #tab: string;
  readonly #changed: (opened: Opened) => Promise<void>;
  #timer: number | null = null;
  #isStopped = false;

  /** `changed` is called with each answer of the server. */
  constructor(id: number, tab: string, changed: (opened: Opened) => Promise<void>) {
    this.#id = id;
    this.#tab = tab;
    this.#changed = changed;
  }

  /** Ask now, and then every few seconds. Return the first answer. */
  async start(): Promise<Opened> {
    const opened = await openCase(this.#id, this.#tab);
    this.#schedule();
    return opened;
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  #schedule(): void {
    if (!this.#isStopped) this.#timer = window.setTimeout(() => void this.#repeat(), PERIOD);
  }

  async #repeat(): Promise<void> {
    try {
      const opened = await openCase(this.#id, this.#tab);
      if (!this.#isStopped) await this.#changed(opened);
    } catch {
      // The server is away. The next attempt follows in a few seconds, and waiting strokes show the state.
    }
    this.#schedule();
  }
}
