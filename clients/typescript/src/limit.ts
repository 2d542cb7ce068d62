import { Code, RpcError } from "./error.js";

/** The longest time supported by timers. A longer time means no limit. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * The timeout and the abort signal of a call.
 *
 * Each step of the call registers a guard, which is called when the call must end.
 */
export class Limit {
  readonly #signal: AbortSignal | undefined;
  readonly #aborted: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #endsAt: number | undefined;
  #failure: RpcError | undefined;
  #stop: ((failure: RpcError) => void) | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
    this.#aborted = () => this.#fail(new RpcError(Code.Canceled, "the caller aborted the call", { cause: signal?.reason }));
    if (signal?.aborted === true) {
      this.#aborted();
    } else {
      signal?.addEventListener("abort", this.#aborted, { once: true });
    }
  }

  /** Starts a timeout in place of the previous one. `undefined` removes it. */
  bound(timeoutMs: number | undefined): this {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#endsAt = undefined;
    if (timeoutMs !== undefined && timeoutMs <= TIMER_MAX_MS && this.#failure === undefined) {
      this.#endsAt = Date.now() + timeoutMs;
      this.#timer = setTimeout(() => {
        this.#fail(new RpcError(Code.DeadlineExceeded, `the call took longer than ${timeoutMs} ms`));
      }, timeoutMs);
    }
    return this;
  }

  /** The time left, if there is a timeout. */
  get leftMs(): number | undefined {
    return this.#endsAt === undefined ? undefined : Math.max(0, this.#endsAt - Date.now());
  }

  /** Throws if the call must end. */
  check(): void {
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
  }

  /** Calls `stop` when the call must end, or immediately if it must end already. Replaces the previous guard. */
  guard(stop: (failure: RpcError) => void): void {
    this.#stop = stop;
    if (this.#failure !== undefined) {
      stop(this.#failure);
    }
  }

  /** Releases the timer and the signal at the end of the call. */
  release(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#aborted);
    this.#stop = undefined;
  }

  #fail(failure: RpcError): void {
    if (this.#failure === undefined) {
      this.#failure = failure;
      this.#stop?.(failure);
    }
  }
}

/** Checks a timeout set by a caller. */
export function checkTimeout(timeoutMs: number | undefined): number | undefined {
  if (timeoutMs !== undefined && !(timeoutMs > 0)) {
    throw new RpcError(Code.DeadlineExceeded, `a call with a time of ${timeoutMs} ms cannot be made`, { notSent: true });
  }
  return timeoutMs;
}
