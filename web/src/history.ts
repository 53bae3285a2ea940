/** Undo and redo of changes. */

import type { Change } from "./edit.ts";

/** The changes of one case, and how many of them are in effect. */
export class History {
  #changes: Change[] = [];
  #position = 0;

  get canUndo(): boolean {
    return this.#position > 0;
  }

  get canRedo(): boolean {
    return this.#position < this.#changes.length;
  }

  /** Add a change. Changes that were undone can then no longer be redone. */
  add(change: Change): void {
    this.#changes.length = this.#position;
    this.#changes.push(change);
    this.#position++;
  }

  /** Return the change to undo, or null. */
  undo(): Change | null {
    return this.canUndo ? this.#changes[--this.#position]! : null;
  }

  /** Return the change to redo, or null. */
  redo(): Change | null {
    return this.canRedo ? this.#changes[this.#position++]! : null;
  }

  /** Forget all changes. */
  clear(): void {
    this.#changes = [];
    this.#position = 0;
  }
}
