import type { RpcError } from "../error.js";
import type { Limit } from "../limit.js";

/** The parts of a connection needed for packets in flight. */
export interface PendingPort {
  readonly isUsable: boolean;
  unusable(): RpcError;
  sendPacket(id: number, content: Uint8Array): void;
  sendCancel(id: number): void;
  closeIfLeft(): void;
}

interface Waiter {
  resolve(content: Uint8Array): void;
  reject(why: RpcError): void;
}

/** The packets in flight, by id. */
export class Pending {
  readonly #port: PendingPort;
  /** An entry without a waiter was cancelled. Its id is free again after the peer has sent an answer or CANCELLED. */
  readonly #sent = new Map<number, Waiter | undefined>();
  /** Calls above the limit of the peer, in order. */
  readonly #queue = new Set<{ start: () => void; fail: (why: RpcError) => void }>();
  #waiting = 0;
  #max = CALLS_MAX;
  #next = 1;

  constructor(port: PendingPort) {
    this.#port = port;
  }

  /** The number of packets with a waiting caller. */
  get waiting(): number {
    return this.#waiting;
  }

  request(content: Uint8Array, limit: Limit, callsMax: number | undefined): Promise<Uint8Array> {
    this.#max = Math.min(CALLS_MAX, callsMax ?? CALLS_MAX);
    return new Promise((resolve, reject) => {
      const start = () => {
        if (this.#port.isUsable) {
          this.#start(content, limit, { resolve, reject });
        } else {
          reject(this.#port.unusable());
        }
      };
      if (this.#sent.size < this.#max) {
        start();
        return;
      }
      const queued = { start, fail: reject };
      this.#queue.add(queued);
      limit.guard((why) => {
        this.#queue.delete(queued);
        reject(why);
      });
    });
  }

  answer(id: number, content: Uint8Array): void {
    const waiter = this.#sent.get(id);
    this.#forget(id, waiter);
    waiter?.resolve(content);
  }

  cancelled(id: number): void {
    // CANCELLED is valid only for packets cancelled by this side.
    if (this.#sent.has(id) && this.#sent.get(id) === undefined) {
      this.#forget(id, undefined);
    }
  }

  /** Fails all queued calls, so that another connection can take them. The peer accepts no new calls. */
  leave(): void {
    const queue = [...this.#queue];
    this.#queue.clear();
    for (const queued of queue) {
      queued.fail(this.#port.unusable());
    }
  }

  fail(why: RpcError): void {
    this.leave();
    const waiters = [...this.#sent.values()];
    this.#sent.clear();
    this.#waiting = 0;
    for (const waiter of waiters) {
      waiter?.reject(why);
    }
  }

  #start(content: Uint8Array, limit: Limit, waiter: Waiter): void {
    while (this.#sent.has(this.#next)) {
      this.#step();
    }
    const id = this.#next;
    this.#step();
    this.#sent.set(id, waiter);
    this.#waiting += 1;
    this.#port.sendPacket(id, content);
    limit.guard((why) => {
      if (this.#sent.get(id) === waiter) {
        this.#sent.set(id, undefined);
        this.#waiting -= 1;
        this.#port.sendCancel(id);
        waiter.reject(why);
        this.#port.closeIfLeft();
      }
    });
  }

  #step(): void {
    this.#next = this.#next === 0xffff ? 1 : this.#next + 1;
  }

  #forget(id: number, waiter: Waiter | undefined): void {
    if (!this.#sent.delete(id)) {
      return;
    }
    if (waiter !== undefined) {
      this.#waiting -= 1;
    }
    const [next] = this.#queue;
    if (next !== undefined && this.#sent.size < this.#max) {
      this.#queue.delete(next);
      next.start();
    }
    this.#port.closeIfLeft();
  }
}

/** Half of the id space, so that the search for a free id is short. */
const CALLS_MAX = 1 << 15;
