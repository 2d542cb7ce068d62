import { Code, RpcError } from "./error.js";

/** The longest time that timers can be set to; more is no limit. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * The end of a call that does not come from the peer: its time is up, or its caller aborts it. Whatever the call waits for at a time
 * guards it, and is told.
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

  /** Sets the time from now on, or takes the limit of time away. */
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

  /** The time that is left, if there is a limit. */
  get leftMs(): number | undefined {
    return this.#endsAt === undefined ? undefined : Math.max(0, this.#endsAt - Date.now());
  }

  /** Throws if the call has to end. */
  check(): void {
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
  }

  /** Has this called when the call has to end, in place of what was set before; now, if it has to already. */
  guard(stop: (failure: RpcError) => void): void {
    this.#stop = stop;
    if (this.#failure !== undefined) {
      stop(this.#failure);
    }
  }

  /** The call is over. */
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

/** Checks a time that a caller set. */
export function checkTimeout(timeoutMs: number | undefined): number | undefined {
  if (timeoutMs !== undefined && !(timeoutMs > 0)) {
    throw new RpcError(Code.DeadlineExceeded, `a call with a time of ${timeoutMs} ms cannot be made`, { notSent: true });
  }
  return timeoutMs;
}
