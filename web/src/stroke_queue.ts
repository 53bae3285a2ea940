/** Strokes that wait for the server. A stroke is kept until the server has confirmed it. */

import { ApiError, OfflineError } from "./api.ts";

/** A stroke with its number in the case. */
export interface Stroke {
  seq: number;
  runs: Uint8Array<ArrayBuffer>;
}

/** Keeps the waiting strokes of one case, also after the page is closed. Each tab has its own strokes. */
export interface StrokeStore {
  /** Return the waiting strokes of all tabs. */
  load(): Promise<Stroke[]>;
  /** Keep a stroke of this tab. */
  save(stroke: Stroke): Promise<void>;
  /** Forget a stroke of this tab. */
  remove(seq: number): Promise<void>;
  /** Replace the strokes of all tabs by strokes of this tab. */
  replace(strokes: readonly Stroke[]): Promise<void>;
  /** Renumber strokes of this tab by adding `offset`. Strokes that another tab has taken over are left out. */
  shift(seqs: readonly number[], offset: number): Promise<void>;
}

export type SaveState = { kind: "saved" } | { kind: "saving"; waiting: number } | { kind: "offline"; waiting: number };

/** Sends a stroke and returns the number of the last stroke that the server has. */
export type Send = (stroke: Stroke) => Promise<number>;

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 3000;
/** Added to the numbers of refused strokes, so that they differ from the numbers of strokes that the server has. */
export const REFUSED = 2 ** 40;

/** Return true if the request may succeed later: the server is starting, or the user must open its new address. */
function isTemporary({ status }: ApiError): boolean {
  return status >= 500 || status === 403;
}

/** Sends strokes one after the other and repeats a stroke until the server has confirmed it. */
export class StrokeQueue {
  readonly #store: StrokeStore;
  readonly #send: Send;
  readonly #pause: (milliseconds: number) => Promise<void>;
  onState: (state: SaveState) => void = () => undefined;
  /** Called if the server refuses a stroke, for example because another tab has changed the case. */
  onConflict: (error: ApiError) => void = () => undefined;
  #waiting: Stroke[] = [];
  #last = 0;
  #isOffline = false;
  #isStopped = false;
  #running: Promise<void> | null = null;
  #flushCallbacks: (() => void)[] = [];

  constructor(
    store: StrokeStore,
    send: Send,
    pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms)),
  ) {
    this.#store = store;
    this.#send = send;
    this.#pause = pause;
  }

  /** Return the number of the last stroke, sent or waiting. */
  get last(): number {
    return this.#last;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /**
   * Continue after the server's last stroke. Return the stored strokes that the server does not have.
   *
   * These strokes are renumbered so that they follow the server's last stroke. Other stored strokes are deleted.
   */
  async resume(serverSeq: number): Promise<Stroke[]> {
    const stored = (await this.#store.load()).sort((a, b) => a.seq - b.seq);
    const missing = stored.filter((stroke) => stroke.seq > serverSeq);
    this.#waiting = missing.map(({ runs }, i) => ({ seq: serverSeq + 1 + i, runs }));
    this.#last = serverSeq + missing.length;
    if (stored.length > 0) await this.#store.replace(this.#waiting);
    this.#report();
    this.#start();
    return [...this.#waiting];
  }

  /** Add a finished stroke and send it as soon as possible. */
  add(runs: Uint8Array<ArrayBuffer>): void {
    const stroke = { seq: ++this.#last, runs };
    this.#waiting.push(stroke);
    void this.#store.save(stroke);
    this.#report();
    this.#start();
  }

  /** Wait until the server has all strokes. */
  async flushed(): Promise<void> {
    if (this.#waiting.length > 0) await new Promise<void>((done) => this.#flushCallbacks.push(done));
  }

  /** Stop sending. Waiting strokes stay in the store. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Stop because another tab has the case. Waiting strokes are sent after the strokes of that tab. */
  async giveUp(): Promise<void> {
    this.stop();
    await this.#running;
    await this.#setAside();
  }

  /** Mark the waiting strokes as refused, since their numbers may now belong to strokes of another tab. */
  #setAside(): Promise<void> {
    return this.#store.shift(
      this.#waiting.map(({ seq }) => seq),
      REFUSED,
    );
  }

  #start(): void {
    this.#running ??= this.#run().finally(() => (this.#running = null));
  }

  async #run(): Promise<void> {
    let pause = FIRST_PAUSE;
    while (this.#waiting.length > 0 && !this.#isStopped) {
      try {
        await this.#sendFirst();
        pause = FIRST_PAUSE;
      } catch (error) {
        if (error instanceof ApiError && !isTemporary(error)) {
          await this.#refuse(error);
          return;
        }
        if (!(error instanceof OfflineError || error instanceof ApiError)) throw error;
        this.#isOffline = true;
        this.#report();
        await this.#pause(pause);
        pause = Math.min(LONGEST_PAUSE, pause * 2);
      }
    }
    if (this.#waiting.length === 0) for (const done of this.#flushCallbacks.splice(0)) done();
  }

  async #refuse(error: ApiError): Promise<void> {
    this.stop();
    await this.#setAside();
    this.onConflict(error);
  }

  async #sendFirst(): Promise<void> {
    const stroke = this.#waiting[0]!;
    const seq = await this.#send(stroke);
    if (seq !== stroke.seq) throw new ApiError(409, "", "another tab has changed this case", "");
    this.#isOffline = false;
    this.#waiting.shift();
    await this.#store.remove(stroke.seq);
    this.#report();
  }

  #report(): void {
    const waiting = this.#waiting.length;
    if (waiting === 0) this.onState({ kind: "saved" });
    else this.onState({ kind: this.#isOffline ? "offline" : "saving", waiting });
  }
}
