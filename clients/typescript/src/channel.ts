import type { DescMethod, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { type Backoff, backoffMs, checkBackoff, pause } from "./backoff.js";
import { callStreaming, type CallOptions, callUnary } from "./call.js";
import { type Codec, json, proto } from "./codec.js";
import { Code, RpcError } from "./error.js";
import { intercept, type Interceptor, type NextCall, only, optionsOf } from "./interceptor.js";
import { checkTimeout, Limit } from "./limit.js";
import { Offer, PeerCalls } from "./serve.js";
import type { OfferedService } from "./service.js";
import { Connection, type Settings } from "./wire/connection.js";
import { globalWebSocket, SUBPROTOCOL, type WebSocketConstructor } from "./wire/socket.js";

/** The settings of a channel. */
export interface ChannelOptions {
  /** The format of messages. Default `"proto"`. */
  format?: "proto" | "json";
  /**
   * The timeout of calls without their own. Default 30 s; 0 disables it.
   *
   * For calls with streams, it limits the time until the call begins, and the wait for the answer to a stream of requests.
   */
  timeoutMs?: number;
  /** The timeout of one attempt to connect. Default 10 s. */
  connectTimeoutMs?: number;
  /** The pauses between attempts to connect. */
  backoff?: Partial<Backoff>;
  /** The interval of pings. A server that is silent for twice as long is considered lost. Default 30 s. */
  pingIntervalMs?: number;
  /** Code around all calls, the first outermost; see {@link Interceptor}. */
  interceptors?: readonly Interceptor[];
  /** Services that the server can call on this connection; see `implement`. */
  services?: readonly OfferedService[];
  /** The maximum size of a received message, including its envelope. Default 5 MiB. */
  contentLenMax?: number;
  /** The maximum size of metadata received with an answer. Default 16 KiB, at most 65 535 bytes. */
  metadataLenMax?: number;
  /** The number of unread bytes that the server may send on a stream. Default 256 KiB. */
  window?: number;
  /** The maximum number of concurrent streams opened by the server. Default 100. */
  streamsMax?: number;
  /** The maximum number of concurrent unary calls by the server. Default 100. */
  callsMax?: number;
  /** The maximum number of bytes of answers that the server leaves unread. Default 64 MiB. */
  unreadLenMax?: number;
  /** Creates WebSockets, where there is no global `WebSocket` or another one is preferred. */
  webSocket?: WebSocketConstructor;
  /** Called with each new state of the channel. */
  onState?(state: ChannelState): void;
}

/**
 * - `idle`: no call has been made yet
 * - `connecting`: calls wait for a connection
 * - `ready`: calls are sent immediately
 * - `closed`: calls fail
 */
export type ChannelState = "idle" | "connecting" | "ready" | "closed";

/**
 * Returns a channel to a server.
 *
 * The channel connects at the first call, or in {@link Channel.connect}. It reconnects whenever its connection is lost, until it is closed.
 *
 * ```ts
 * const channel = createChannel("wss://example.org/");
 * const greeter = createClient(Greeter, channel);
 * ```
 *
 * In a browser, a URL with only a path refers to the server of the page.
 */
export function createChannel(url: string | URL, options: ChannelOptions = {}): Channel {
  return new Channel(resolve(url), options);
}

/** Makes calls to one server. Created by {@link createChannel}. */
export class Channel {
  readonly url: string;
  readonly #options: ChannelOptions;
  readonly #settings: Settings;
  readonly #backoff: Backoff;
  readonly #codec: Codec;
  readonly #offer: Offer;
  readonly #interceptors: readonly Interceptor[];
  readonly #webSocket: WebSocketConstructor;
  readonly #timeoutMs: number | undefined;
  #state: ChannelState = "idle";
  #current: Connection | undefined;
  /** All connections with calls in flight, including the current one. */
  readonly #connections = new Set<Connection>();
  #waiters = new Set<{ wake: () => void }>();
  #lastFailure: RpcError | undefined;
  #wakeUp: (() => void) | undefined;

  /** @internal */
  constructor(url: string, options: ChannelOptions, codec = options.format === "json" ? json : proto) {
    this.url = url;
    this.#options = options;
    this.#backoff = checkBackoff(options.backoff);
    this.#codec = codec;
    this.#offer = new Offer(options.services ?? []);
    this.#interceptors = options.interceptors ?? [];
    this.#webSocket = options.webSocket ?? globalWebSocket();
    this.#timeoutMs = options.timeoutMs === 0 ? undefined : (options.timeoutMs ?? 30_000);
    this.#settings = {
      contentLenMax: options.contentLenMax ?? 5 * 1024 * 1024,
      metadataLenMax: Math.min(options.metadataLenMax ?? 16 * 1024, 0xffff),
      streamsMax: options.streamsMax ?? 100,
      window: options.window ?? 256 * 1024,
      unreadLenMax: options.unreadLenMax ?? 64 * 1024 * 1024,
      callsMax: options.callsMax ?? 100,
      cancelBurst: 1000,
      timeoutMs: this.#timeoutMs,
      pingIntervalMs: options.pingIntervalMs ?? 30_000,
      methods: this.#offer.methods,
    };
  }

  get state(): ChannelState {
    return this.#state;
  }

  /** Waits for a connection, and connects if there is none. Useful if the server makes the calls. */
  async connect(options: { signal?: AbortSignal; timeoutMs?: number } = {}): Promise<void> {
    const limit = new Limit(options.signal).bound(checkTimeout(options.timeoutMs) ?? this.#timeoutMs);
    try {
      await this.#usable(limit);
    } finally {
      limit.release();
    }
  }

  /** Closes the channel. Calls in flight fail. */
  close(): void {
    if (this.#state === "closed") {
      return;
    }
    this.#enter("closed");
    const why = new RpcError(Code.Canceled, "the channel was closed");
    for (const connection of [...this.#connections]) {
      connection.close(why);
    }
    this.#wakeAll();
    this.#wakeUp?.();
  }

  /** Makes a unary call. Clients call this function. */
  async unary<M extends DescMethod>(
    method: M,
    input: MessageInitShape<M["input"]>,
    options: CallOptions = {},
  ): Promise<MessageShape<M["output"]>> {
    if (this.#interceptors.length === 0) {
      return this.#unary(method, input, options);
    }
    return only(this.#intercepted(method, input, options));
  }

  /** Makes a call with a stream of answers. Clients call this function. */
  streaming<M extends DescMethod>(
    method: M,
    input: MessageInitShape<M["input"]> | AsyncIterable<MessageInitShape<M["input"]>>,
    options: CallOptions = {},
  ): AsyncIterable<MessageShape<M["output"]>> {
    return this.#interceptors.length === 0 ? this.#streaming(method, input, options) : this.#intercepted(method, input, options);
  }

  /** Makes a call with a stream of requests and a single answer. Clients call this function. */
  async clientStreaming<M extends DescMethod>(
    method: M,
    inputs: AsyncIterable<MessageInitShape<M["input"]>>,
    options: CallOptions = {},
  ): Promise<MessageShape<M["output"]>> {
    return only(this.streaming(method, inputs, options));
  }

  #intercepted<M extends DescMethod>(method: M, input: unknown, options: CallOptions): AsyncIterable<MessageShape<M["output"]>> {
    const end: NextCall = (call) => {
      const [input, options] = [call.input as MessageInitShape<M["input"]>, optionsOf(call)];
      return method.methodKind === "unary" ? one(() => this.#unary(method, input, options)) : this.#streaming(method, input, options);
    };
    return intercept(this.#interceptors, method, input, options, end) as AsyncIterable<MessageShape<M["output"]>>;
  }

  async #unary<M extends DescMethod>(
    method: M,
    input: MessageInitShape<M["input"]>,
    options: CallOptions,
  ): Promise<MessageShape<M["output"]>> {
    const limit = new Limit(options.signal).bound(checkTimeout(options.timeoutMs) ?? this.#timeoutMs);
    try {
      for (;;) {
        const connection = await this.#usable(limit);
        try {
          return await callUnary(connection, method, this.#codec, input, options, limit);
        } catch (error) {
          // The server went away before any part of the call was sent, so the next connection can take the call.
          if (connection.isUsable || !(error instanceof RpcError) || !error.notSent || error.code !== Code.Unavailable) {
            throw error;
          }
        }
      }
    } finally {
      limit.release();
    }
  }

  async *#streaming<M extends DescMethod>(
    method: M,
    input: MessageInitShape<M["input"]> | AsyncIterable<MessageInitShape<M["input"]>>,
    options: CallOptions,
  ): AsyncGenerator<MessageShape<M["output"]>, void> {
    const limit = new Limit(options.signal).bound(checkTimeout(options.timeoutMs) ?? this.#timeoutMs);
    try {
      const connection = await this.#usable(limit);
      if (options.timeoutMs === undefined) {
        limit.bound(undefined);
      }
      yield* callStreaming(connection, method, this.#codec, input, options, limit, this.#timeoutMs);
    } finally {
      limit.release();
    }
  }

  /** Waits for a connection that accepts calls. */
  async #usable(limit: Limit): Promise<Connection> {
    for (;;) {
      limit.check();
      if (this.#current?.isUsable === true) {
        return this.#current;
      }
      if (this.#state === "closed") {
        throw new RpcError(Code.Canceled, "the channel was closed", { notSent: true });
      }
      if (this.#state === "idle") {
        void this.#stayConnected();
      }
      await new Promise<void>((wake, reject) => {
        const waiter = { wake };
        this.#waiters.add(waiter);
        limit.guard((failure) => {
          this.#waiters.delete(waiter);
          const why = this.#lastFailure === undefined ? "" : ` (${this.#lastFailure.rawMessage})`;
          reject(new RpcError(failure.code, `${failure.rawMessage}: there was no connection to ${this.url} yet${why}`, {
            notSent: true,
            cause: failure.cause ?? this.#lastFailure,
          }));
        });
      });
    }
  }

  /** Connects, and reconnects whenever the connection is lost. */
  async #stayConnected(): Promise<void> {
    let failures = 0;
    while (this.#state !== "closed") {
      this.#enter("connecting");
      const begun = Date.now();
      this.#lastFailure = await this.#connectOnce();
      if (this.#isClosed()) {
        return;
      }
      this.#enter("connecting");
      failures = Date.now() - begun >= STABLE_MS ? 0 : failures + 1;
      await pause(backoffMs(this.#backoff, failures), (wake) => {
        this.#wakeUp = wake;
      });
    }
  }

  /** Connects, and waits until the connection accepts no more calls. Returns the reason. */
  #connectOnce(): Promise<RpcError> {
    return new Promise((over) => {
      let socket;
      try {
        socket = new this.#webSocket(this.url, SUBPROTOCOL);
      } catch (error) {
        over(new RpcError(Code.Unavailable, (error as Error).message, { cause: error, notSent: true }));
        return;
      }
      const connection: Connection = new Connection(socket, this.#settings, {
        ready: () => {
          clearTimeout(timer);
          this.#current = connection;
          this.#enter("ready");
          this.#wakeAll();
        },
        packet: (id, content) => calls.packet(id, content),
        cancel: (id) => calls.cancel(id),
        stream: (stream) => void calls.stream(stream).catch(() => {}),
        isServing: () => calls.isServing,
        leaving: (why) => {
          this.#current = undefined;
          over(new RpcError(Code.Unavailable, `the server is leaving: ${why}`, { notSent: true }));
        },
        closed: (why) => {
          clearTimeout(timer);
          this.#connections.delete(connection);
          calls.end(why);
          if (this.#current === connection) {
            this.#current = undefined;
          }
          over(why);
        },
      });
      const calls = new PeerCalls(connection, this.#offer);
      this.#connections.add(connection);
      const connectMs = this.#options.connectTimeoutMs ?? 10_000;
      const timer = setTimeout(() => connection.fail(`it took longer than ${connectMs} ms (connectTimeoutMs)`), connectMs);
    });
  }

  #isClosed(): boolean {
    return this.#state === "closed";
  }

  #enter(state: ChannelState): void {
    if (this.#state !== state && this.#state !== "closed") {
      this.#state = state;
      this.#options.onState?.(state);
    }
  }

  #wakeAll(): void {
    const waiters = this.#waiters;
    this.#waiters = new Set();
    for (const { wake } of waiters) {
      wake();
    }
  }
}

async function* one<T>(call: () => Promise<T>): AsyncGenerator<T, void> {
  yield await call();
}

/** A connection that lasted this long counts as stable and resets the backoff. */
const STABLE_MS = 10_000;

function resolve(url: string | URL): string {
  const base = (globalThis as { location?: { href: string } }).location?.href;
  const resolved = new URL(url, base);
  const scheme = { "http:": "ws:", "https:": "wss:" }[resolved.protocol] ?? resolved.protocol;
  if (scheme !== "ws:" && scheme !== "wss:") {
    throw new TypeError(`${resolved.href}: the address of a server begins with ws:// or wss://`);
  }
  resolved.hash = "";
  return scheme + resolved.href.slice(resolved.protocol.length);
}
