/** Pauses between attempts to connect. */
export interface Backoff {
  /** The pause after the first failure. Default 100 ms. */
  readonly initialMs: number;
  /** The longest pause. Default 10 s. */
  readonly maxMs: number;
}

/** Fills in the defaults and checks the values. */
export function checkBackoff({ initialMs = 100, maxMs = 10_000 }: Partial<Backoff> = {}): Backoff {
  if (!(initialMs > 0) || !(maxMs >= initialMs)) {
    throw new TypeError(`backoff needs 0 < initialMs <= maxMs, not ${initialMs} and ${maxMs}`);
  }
  return { initialMs, maxMs };
}

/**
 * Returns a pause that doubles with each failure, minus a random part of up to one half, so that clients do not reconnect simultaneously.
 */
export function backoffMs({ initialMs, maxMs }: Backoff, failures: number, random = Math.random()): number {
  const most = Math.min(maxMs, initialMs * 2 ** Math.min(Math.max(failures - 1, 0), 30));
  return most * (1 - random / 2);
}

/** Waits until the time is over, `wake` is called, or the browser goes online. */
export function pause(ms: number, whoWakes: (wake: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const page = globalThis as { addEventListener?: typeof addEventListener; removeEventListener?: typeof removeEventListener };
    const wake = () => {
      clearTimeout(timer);
      page.removeEventListener?.("online", wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    page.addEventListener?.("online", wake);
    whoWakes(wake);
  });
}
