/** The parts of Node's test runner that the tests use. */

declare module "node:test" {
  export function test(name: string, run: () => void | Promise<void>): void;
}

declare module "node:assert/strict" {
  const assert: {
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    ok(value: unknown, message?: string): void;
    throws(run: () => unknown, message?: RegExp): void;
    rejects(result: Promise<unknown>, message?: RegExp): Promise<void>;
  };
  export default assert;
}
