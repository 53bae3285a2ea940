/** Waiting strokes in the browser's database, so that a closed or crashed tab loses none. */

import type { Stroke, StrokeStore } from "./stroke_queue.ts";

const DATABASE = "graftseg";
const TABLE = "strokes";

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the database of the browser failed"));
  });
}

/** Open the database of waiting strokes. */
export function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
  return result(request);
}

/** The waiting strokes of one case. All tabs of the browser share them. */
export class DatabaseStore implements StrokeStore {
  readonly #database: IDBDatabase;
  readonly #key: string;

  constructor(database: IDBDatabase, key: string) {
    this.#database = database;
    this.#key = key;
  }

  load(): Promise<Stroke[]> {
    return result(this.#table("readonly").getAll(this.#range()) as IDBRequest<Stroke[]>);
  }

  async save(stroke: Stroke): Promise<void> {
    await result(this.#table("readwrite").put(stroke, [this.#key, stroke.seq]));
  }

  async remove(seq: number): Promise<void> {
    await result(this.#table("readwrite").delete([this.#key, seq]));
  }

  async clear(): Promise<void> {
    await result(this.#table("readwrite").delete(this.#range()));
  }

  #table(mode: IDBTransactionMode): IDBObjectStore {
    return this.#database.transaction(TABLE, mode).objectStore(TABLE);
  }

  #range(): IDBKeyRange {
    return IDBKeyRange.bound([this.#key, 0], [this.#key, Infinity]);
  }
}
