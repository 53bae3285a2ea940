/** The right to draw on a case. Only one tab has it at a time. */

import { openCase, type Opened } from "./api.ts";

const RENEWAL_MS = 3000;

/** Requests the right to draw on a case every few seconds, until it is stopped. */
export class Lease {
  readonly #id: number;
  readonly #tab: string;
  readonly #onAnswer: (opened: Opened) => Promise<void>;
  #timer: number | null = null;
  #isStopped = false;

  /** `onAnswer` is called with each answer of the server after the first. */
  constructor(id: number, tab: string, onAnswer: (opened: Opened) => Promise<void>) {
    this.#id = id;
    this.#tab = tab;
    this.#onAnswer = onAnswer;
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
    if (!this.#isStopped) this.#timer = window.setTimeout(() => void this.#renew(), RENEWAL_MS);
  }

  async #renew(): Promise<void> {
    try {
      const opened = await openCase(this.#id, this.#tab);
      if (!this.#isStopped) await this.#onAnswer(opened);
    } catch {
      // The server does not answer. The header shows this as soon as strokes wait, and the next request follows soon.
    }
    this.#schedule();
  }
}
