/** The required part of a WebSocket. It fits browsers, Node 22 and later, Deno, Bun, and the package `ws`. */
export interface WebSocketLike {
  binaryType: string;
  readonly url: string;
  readonly bufferedAmount: number;
  readonly protocol: string;
  send(data: Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
  // Declared with `any` events, so that the DOM types are not needed.
  onopen: ((event: any) => unknown) | null;
  onmessage: ((event: any) => unknown) | null;
  onclose: ((event: any) => unknown) | null;
  onerror: ((event: any) => unknown) | null;
}

/** Creates a WebSocket, like the global `WebSocket`. */
export type WebSocketConstructor = new (url: string, protocols?: string | string[]) => WebSocketLike;

/** The subprotocol of binary messages with frisbee frames. */
export const SUBPROTOCOL = "frpc";

/** Returns the global `WebSocket`. Throws an error with advice if there is none. */
export function globalWebSocket(): WebSocketConstructor {
  const found = (globalThis as { WebSocket?: unknown }).WebSocket;
  if (typeof found !== "function") {
    throw new TypeError(
      "there is no WebSocket here: Node has one from version 22 on, and Node 20 with --experimental-websocket. " +
        "Or pass one of a package: npm install ws, and createChannel(url, { webSocket: WebSocket })",
    );
  }
  return found as WebSocketConstructor;
}

/**
 * Describes the failure of a WebSocket that gives no reason, as in browsers and Node 24.
 *
 * A `url` means that the WebSocket never opened; the server may not allow the origin of the page.
 */
export function silentFailure(url: string | undefined): string {
  const page = (globalThis as { location?: { origin: string } }).location?.origin;
  if (page === undefined || url === undefined || new URL(url).origin.replace(/^ws/, "http") === page) {
    return "the WebSocket failed without a reason";
  }
  return `the WebSocket failed, for which the browser's console may have a reason; the server has to allow pages of ${page} (Http::cors)`;
}

/** Joins all frames of one event loop turn into one WebSocket message. */
export class Outbox {
  readonly #socket: WebSocketLike;
  #frames: Uint8Array<ArrayBuffer>[] = [];
  #len = 0;
  #isDue = false;

  constructor(socket: WebSocketLike) {
    this.#socket = socket;
  }

  /** The number of bytes not sent yet. */
  get waiting(): number {
    return this.#len + this.#socket.bufferedAmount;
  }

  push(frame: Uint8Array<ArrayBuffer>): void {
    this.#frames.push(frame);
    this.#len += frame.length;
    if (this.#len >= MESSAGE_LEN) {
      this.flush();
    } else if (!this.#isDue) {
      this.#isDue = true;
      queueMicrotask(() => {
        this.#isDue = false;
        this.flush();
      });
    }
  }

  flush(): void {
    const frames = this.#frames;
    if (frames.length === 0) {
      return;
    }
    const len = this.#len;
    this.#frames = [];
    this.#len = 0;
    let message = frames[0] as Uint8Array<ArrayBuffer>;
    if (frames.length > 1) {
      message = new Uint8Array(len);
      let at = 0;
      for (const frame of frames) {
        message.set(frame, at);
        at += frame.length;
      }
    }
    this.#socket.send(message);
  }
}

/** The minimum length of frames that are sent without waiting for more. */
const MESSAGE_LEN = 64 * 1024;
