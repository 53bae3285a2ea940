import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, OfflineError } from "../src/api.ts";
import { saveText } from "../src/save_state.ts";
import { REFUSED, StrokeQueue, type SaveState, type Stroke, type StrokeStore } from "../src/stroke_queue.ts";

/** A store in memory. It stands for the database that survives the page and that all tabs share. */
class MemoryStore implements StrokeStore {
  readonly strokes: Map<string, Stroke>;
  readonly #tab: string;

  constructor(tab = "a", shared: Map<string, Stroke> = new Map()) {
    this.#tab = tab;
    this.strokes = shared;
  }

  #key = (seq: number): string => `${this.#tab} ${seq}`;
  load = (): Promise<Stroke[]> => Promise.resolve([...this.strokes.values()]);
  save = (stroke: Stroke): Promise<void> => Promise.resolve(void this.strokes.set(this.#key(stroke.seq), stroke));
  remove = (seq: number): Promise<void> => Promise.resolve(void this.strokes.delete(this.#key(seq)));

  async replace(strokes: readonly Stroke[]): Promise<void> {
    this.strokes.clear();
    for (const stroke of strokes) await this.save(stroke);
  }

  async shift(seqs: readonly number[], offset: number): Promise<void> {
    for (const seq of seqs) {
      const stroke = this.strokes.get(this.#key(seq));
      if (stroke === undefined) continue;
      await this.remove(seq);
      await this.save({ ...stroke, seq: seq + offset });
    }
  }
}

/** A server that stores strokes as the contract says. */
class Server {
  readonly stored: number[] = [];
  fails: ("before" | "after" | "no")[] = [];

  send = ({ seq, runs }: Stroke): Promise<number> => {
    const failure = this.fails.shift() ?? "no";
    if (failure === "before") return Promise.reject(new OfflineError("away"));
    if (seq === this.stored.length + 1) this.stored.push(runs[0]!);
    else if (seq > this.stored.length) return Promise.reject(new ApiError(409, "", "not the next stroke", ""));
    return failure === "after" ? Promise.reject(new OfflineError("answer lost")) : Promise.resolve(this.stored.length);
  };
}

const now = (): Promise<void> => Promise.resolve();
const bytes = (value: number): Uint8Array<ArrayBuffer> => Uint8Array.of(value);

test("strokes are stored once and in order, whatever gets lost", async () => {
  const server = new Server();
  const store = new MemoryStore();
  const queue = new StrokeQueue(store, server.send, now);
  await queue.resume(0);
  server.fails = ["after", "no", "before", "before", "after", "no", "after"];
  for (const value of [10, 20, 30, 40]) queue.add(bytes(value));
  await queue.flushed();
  assert.deepEqual(server.stored, [10, 20, 30, 40]);
  assert.equal(store.strokes.size, 0);
  assert.equal(queue.last, 4);
});

test("a new page sends the strokes that the old one has left", async () => {
  const server = new Server();
  const store = new MemoryStore();
  const old = new StrokeQueue(store, server.send, now);
  await old.resume(0);
  server.fails = ["no", "after", ...Array<"before">(50).fill("before")];
  for (const value of [1, 2, 3]) old.add(bytes(value));
  for (let i = 0; i < 20; i++) await now();
  old.stop();
  assert.deepEqual(server.stored, [1, 2]);
  server.fails = [];
  const fresh = new StrokeQueue(store, server.send, now);
  const missing = await fresh.resume(server.stored.length);
  assert.deepEqual(
    missing.map(({ runs }) => runs[0]),
    [3],
  );
  await fresh.flushed();
  fresh.add(bytes(4));
  await fresh.flushed();
  assert.deepEqual(server.stored, [1, 2, 3, 4]);
  assert.equal(store.strokes.size, 0);
});

test("strokes that do not follow the server's last one are numbered again", async () => {
  const server = new Server();
  const store = new MemoryStore();
  await store.save({ seq: 7, runs: bytes(1) });
  await store.save({ seq: 8, runs: bytes(2) });
  const queue = new StrokeQueue(store, server.send, now);
  await queue.resume(0);
  await queue.flushed();
  assert.deepEqual(server.stored, [1, 2]);
  assert.equal(store.strokes.size, 0);
});

test("a refused stroke stops the queue and stays in the store", async () => {
  const store = new MemoryStore();
  const queue = new StrokeQueue(store, () => Promise.reject(new ApiError(409, "", "another tab", "")), now);
  let conflicts = 0;
  queue.onConflict = () => conflicts++;
  await queue.resume(0);
  queue.add(bytes(1));
  queue.add(bytes(2));
  for (let i = 0; i < 10; i++) await now();
  assert.equal(conflicts, 1);
  assert.deepEqual(
    [...store.strokes.values()].map(({ seq }) => seq),
    [REFUSED + 1, REFUSED + 2],
  );
});

test("a stroke that another tab has numbered the same way is a conflict", async () => {
  const queue = new StrokeQueue(new MemoryStore(), () => Promise.resolve(5), now);
  let conflicts = 0;
  queue.onConflict = () => conflicts++;
  await queue.resume(0);
  queue.add(bytes(1));
  for (let i = 0; i < 10; i++) await now();
  assert.equal(conflicts, 1);
});

test("the indicator shows the state of saving", async () => {
  const server = new Server();
  const states: string[] = [];
  const queue = new StrokeQueue(new MemoryStore(), server.send, now);
  queue.onState = (state: SaveState) => states.push(saveText(state));
  await queue.resume(0);
  server.fails = ["before"];
  queue.add(bytes(1));
  queue.add(bytes(2));
  await queue.flushed();
  assert.deepEqual(states, ["saved", "saving", "saving", "offline: 2 strokes wait, retrying", "saving", "saved"]);
});

test("refused strokes follow those of the other tab, and none is lost or stored twice", async () => {
  const server = new Server();
  const shared = new Map<string, Stroke>();
  let holder = "a";
  const tabOf = (name: string): StrokeQueue =>
    new StrokeQueue(
      new MemoryStore(name, shared),
      (stroke) => (holder === name ? server.send(stroke) : Promise.reject(new ApiError(409, "", "another tab", ""))),
      now,
    );
  const first = tabOf("a");
  await first.resume(0);
  first.add(bytes(1));
  await first.flushed();
  holder = "b";
  const second = tabOf("b");
  await second.resume(1);
  second.add(bytes(2));
  first.add(bytes(3));
  first.add(bytes(4));
  await second.flushed();
  await first.giveUp();
  assert.deepEqual(server.stored, [1, 2]);
  holder = "a";
  const again = tabOf("a");
  await again.resume(server.stored.length);
  await again.flushed();
  assert.deepEqual(server.stored, [1, 2, 3, 4]);
  assert.equal(shared.size, 0);
});

test("a tab does not send strokes again that another tab has taken over", async () => {
  const server = new Server();
  const shared = new Map<string, Stroke>();
  const waiting = new MemoryStore("a", shared);
  await waiting.save({ seq: 1, runs: bytes(1) });
  const second = new StrokeQueue(new MemoryStore("b", shared), server.send, now);
  await second.resume(0);
  await second.flushed();
  await waiting.shift([1], REFUSED);
  assert.deepEqual(server.stored, [1]);
  assert.equal(shared.size, 0);
});
