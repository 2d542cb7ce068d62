/** A token bucket. An empty bucket refills within ten seconds. */
export class Allowance {
  readonly #most: number;
  #left: number;
  #at: number;

  constructor(most: number, now: number) {
    this.#most = most;
    this.#left = most;
    this.#at = now;
  }

  /** Takes a token, if one is left. */
  take(now: number): boolean {
    this.#left = Math.min(this.#most, this.#left + ((now - this.#at) / REFILL_MS) * this.#most);
    this.#at = now;
    if (this.#left < 1) {
      return false;
    }
    this.#left -= 1;
    return true;
  }

  /** Returns a token to the bucket. */
  earn(): void {
    this.#left = Math.min(this.#most, this.#left + 1);
  }
}

const REFILL_MS = 10_000;
