/** The name of this tab. It survives a reload, but a duplicated tab gets another name. */

const KEY = "graftseg-tab";
const LOCK_TIMEOUT_MS = 300;

/** Hold a lock with this name while the page is open. Return false if another page holds it. */
function holdLock(name: string): Promise<boolean> {
  return new Promise((resolve) => {
    const held = (): Promise<never> => {
      resolve(true);
      return new Promise(() => undefined);
    };
    navigator.locks.request(name, { signal: AbortSignal.timeout(LOCK_TIMEOUT_MS) }, held).catch(() => resolve(false));
  });
}

/** Return the name of this tab. */
export async function tabId(): Promise<string> {
  const stored = sessionStorage.getItem(KEY);
  if (stored !== null && (await holdLock(`graftseg-tab-${stored}`))) return stored;
  const id = crypto.randomUUID();
  sessionStorage.setItem(KEY, id);
  await holdLock(`graftseg-tab-${id}`);
  return id;
}
