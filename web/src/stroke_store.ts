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

function completed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error("the database of the browser failed"));
  });
}

/** Open the database of waiting strokes. */
export function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
  return result(request);
}

/** The waiting strokes of one case. Tabs see the strokes of one another, but each has its own rows. */
export class DatabaseStore implements StrokeStore {
  readonly #database: IDBDatabase;
  readonly #case: string;
  readonly #tab: string;

  constructor(database: IDBDatabase, caseKey: string, tab: string) {
    this.#database = database;
    this.#case = caseKey;
    this.#tab = tab;
  }

  load(): Promise<Stroke[]> {
    const table = this.#database.transaction(TABLE).objectStore(TABLE);
    return result(table.getAll(this.#range()) as IDBRequest<Stroke[]>);
  }

  save(stroke: Stroke): Promise<void> {
    return this.#change((table) => table.put(stroke, this.#key(stroke.seq)));
  }

  remove(seq: number): Promise<void> {
    return this.#change((table) => table.delete(this.#key(seq)));
  }

  replace(strokes: readonly Stroke[]): Promise<void> {
    return this.#change((table) => {
      table.delete(this.#range());
      for (const stroke of strokes) table.put(stroke, this.#key(stroke.seq));
    });
  }

  shift(seqs: readonly number[], offset: number): Promise<void> {
    return this.#change((table) => {
      for (const seq of seqs) {
        const request = table.get(this.#key(seq)) as IDBRequest<Stroke | undefined>;
        request.onsuccess = () => {
          if (request.result === undefined) return;
          table.delete(this.#key(seq));
          table.put({ ...request.result, seq: seq + offset }, this.#key(seq + offset));
        };
      }
    });
  }

  /** Change the table in one transaction, so that a crash leaves all of the change or nothing. */
  #change(action: (table: IDBObjectStore) => void): Promise<void> {
    const transaction = this.#database.transaction(TABLE, "readwrite", { durability: "strict" });
    action(transaction.objectStore(TABLE));
    return completed(transaction);
  }

  #key(seq: number): IDBValidKey {
    return [this.#case, this.#tab, seq];
  }

  #range(): IDBKeyRange {
    return IDBKeyRange.bound([this.#case], [this.#case, []]);
  }
}
