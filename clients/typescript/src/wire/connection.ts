import { Code, RpcError } from "../error.js";
import type { Limit } from "../limit.js";
import { Allowance } from "./allowance.js";
import { ProtocolError } from "./bytes.js";
import { type Control, decodeControl, encodeCancel, encodeCancelled, encodeCredit, encodeHello } from "./control.js";
import { Kind } from "./envelope.js";
import { encodeFrame, type Frame, FrameDecoder, NOTHING, Operation } from "./frames.js";
import { decodePart, encodePart, Feature, type FrpcPart, type Hello, PART_NAME, type ServedMethod } from "./hello.js";
import { Pending } from "./pending.js";
import { Outbox, silentFailure, SUBPROTOCOL, type WebSocketLike } from "./socket.js";
import { Stream } from "./stream.js";

/** The limits of this side, and the methods it offers. */
export interface Settings {
  readonly contentLenMax: number;
  readonly metadataLenMax: number;
  readonly streamsMax: number;
  readonly window: number;
  readonly unreadLenMax: number;
  readonly cancelBurst: number;
  readonly callsMax: number;
  /** The default timeout of unary calls. */
  readonly timeoutMs: number | undefined;
  readonly pingIntervalMs: number;
  readonly methods: readonly ServedMethod[];
}

/** Receives the events of a connection. */
export interface Handler {
  /** The HELLO of the server has arrived: calls can be made. */
  ready(): void;
  /** A REQUEST or DESCRIBE. `content` starts with the kind. */
  packet(id: number, content: Uint8Array): void;
  /** The peer cancelled a packet. Returns `true` if the packet was in progress and will not be answered. */
  cancel(id: number): boolean;
  /** The peer opened a stream. */
  stream(stream: Stream): void;
  /** Returns `true` while calls of the peer are in progress. */
  isServing(): boolean;
  /** The server accepts no new calls on this connection. */
  leaving(why: string): void;
  /** The connection has ended. */
  closed(why: RpcError): void;
}

/** A connection to a server: frames over a WebSocket. */
export class Connection {
  readonly settings: Settings;
  readonly #socket: WebSocketLike;
  readonly #outbox: Outbox;
  readonly #decoder: FrameDecoder;
  readonly #handler: Handler;
  readonly #streams = new Map<number, Stream>();
  readonly #pending: Pending;
  #theirStreams = 0;
  /** An upper bound of the bytes of answers not sent yet. */
  #unread = 0;
  #nextStream: number = OWN_STREAMS.first;
  #peer: Hello | undefined;
  #part: FrpcPart = { metadataLenMax: 0, methods: [] };
  #methods = new Map<string, ServedMethod>();
  /** The limits of cancellations: by the peer, and by this side. */
  readonly #cancelsAllowed: Allowance;
  #ownCancels: Allowance | undefined;
  #isLeaving = false;
  #closedBy: RpcError | undefined;
  #heardAt = Date.now();
  #heartbeat: ReturnType<typeof setInterval> | undefined;

  /** Takes over a WebSocket that is still connecting. */
  constructor(socket: WebSocketLike, settings: Settings, handler: Handler) {
    this.settings = settings;
    this.#socket = socket;
    this.#outbox = new Outbox(socket);
    this.#decoder = new FrameDecoder(settings.contentLenMax);
    this.#handler = handler;
    this.#pending = new Pending(this);
    this.#cancelsAllowed = new Allowance(settings.cancelBurst, Date.now());
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }: { data: unknown }) => this.#receive(data);
    socket.onerror = ({ message, error }: { message?: string; error?: unknown }) => {
      this.fail(message || silentFailure(this.#peer === undefined ? socket.url : undefined), error);
    };
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => {
      this.fail(`the WebSocket was closed (${code}${reason === "" ? "" : `: ${reason}`})`);
    };
  }

  /** The fRPC part in the HELLO of the server. */
  get part(): FrpcPart {
    return this.#part;
  }

  /** The maximum content length accepted by the server. */
  get contentLenMax(): number {
    return this.#peer?.contentLenMax ?? 0;
  }

  /** `true` if calls can be made. */
  get isUsable(): boolean {
    return this.#peer !== undefined && !this.#isLeaving && this.#closedBy === undefined;
  }

  /** Returns the operation of a method on the server. */
  method(path: string, kind: number): ServedMethod {
    const method = this.#methods.get(path);
    if (method === undefined || method.kind !== kind) {
      const why = method === undefined ? "does not serve" : "has other streams in";
      throw new RpcError(Code.Unimplemented, `the server ${why} ${path}`, { notSent: true });
    }
    return method;
  }

  /** Sends a packet and returns the content of the answer. */
  request(content: Uint8Array, limit: Limit): Promise<Uint8Array> {
    this.#checkLen(content);
    return this.#pending.request(content, limit, this.#part.callsMax);
  }

  /** Opens a stream with its first data. */
  openStream(first: Uint8Array): Stream {
    this.#checkLen(first);
    this.#checkUsable();
    const own = this.#streams.size - this.#theirStreams;
    if (own >= (this.#peer?.streamsMax ?? OWN_STREAMS.last)) {
      throw new RpcError(Code.ResourceExhausted, `all ${own} streams allowed by the server are open`, { notSent: true });
    }
    let id = this.#nextStream;
    while (this.#streams.has(id)) {
      id = id === OWN_STREAMS.last ? OWN_STREAMS.first : id + 1;
    }
    this.#nextStream = id === OWN_STREAMS.last ? OWN_STREAMS.first : id + 1;
    const stream = this.#newStream(id);
    stream.trySend(first);
    return stream;
  }

  /** Sends a packet with the operation EXTENDED. */
  sendPacket(id: number, content: Uint8Array): void {
    this.#send(encodeFrame(id, Operation.Extended, content));
  }

  /** Answers a packet of the peer. */
  answerPacket(id: number, content: Uint8Array): void {
    this.#cancelsAllowed.earn();
    this.#answer(encodeFrame(id, Operation.Extended, content));
  }

  /** Cancels a packet, if the peer supports it and its limit allows another cancellation. */
  sendCancel(id: number): void {
    const burst = this.#shares(Feature.Cancel) ? (this.#peer?.cancelBurst ?? 0) : 0;
    if (burst > 0 && this.#cancels(burst).take(Date.now())) {
      this.#send(encodeFrame(id, Operation.Control, encodeCancel(Operation.Extended)));
    }
  }

  /** Closes the connection if the server is leaving and nothing is in flight. */
  closeIfLeft(): void {
    if (this.#isLeaving && this.#pending.waiting === 0 && this.#streams.size === 0 && !this.#handler.isServing()) {
      this.close(new RpcError(Code.Unavailable, "the server went away"));
    }
  }

  /** Closes the connection. Calls in flight fail with `why`. */
  close(why: RpcError): void {
    if (this.#closedBy !== undefined) {
      return;
    }
    this.#outbox.flush();
    this.#closedBy = why;
    clearInterval(this.#heartbeat);
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.onerror = () => {};
    try {
      this.#socket.close(1000);
    } catch {
      // The socket never opened.
    }
    this.#pending.fail(why);
    for (const stream of [...this.#streams.values()]) {
      stream.handleLoss(why);
    }
    this.#handler.closed(why);
  }

  /** Closes the connection after a failure. */
  fail(why: string, cause?: unknown): void {
    const what = this.#peer === undefined ? "no connection to the server" : "the connection to the server was lost";
    this.close(new RpcError(Code.Unavailable, `${what}: ${why}`, { notSent: this.#peer === undefined, cause }));
  }

  /** Throws if calls cannot be made. */
  #checkUsable(): void {
    if (!this.isUsable) {
      throw this.unusable();
    }
  }

  /** Returns the failure of calls that came too late for this connection. */
  unusable(): RpcError {
    return new RpcError(Code.Unavailable, this.#closedBy?.rawMessage ?? "the server went away", { notSent: true });
  }

  #checkLen(content: Uint8Array): void {
    if (content.length > this.contentLenMax) {
      throw new RpcError(Code.ResourceExhausted, `the message has ${content.length} bytes, more than the ${this.contentLenMax} that the server accepts`, { notSent: true });
    }
  }

  #opened(): void {
    if (this.#socket.protocol !== SUBPROTOCOL) {
      this.fail(`it does not speak the sub-protocol ${SUBPROTOCOL} at this path`);
      return;
    }
    const { contentLenMax, streamsMax, window, cancelBurst, metadataLenMax, timeoutMs, callsMax, methods } = this.settings;
    const part = encodePart({ metadataLenMax, timeoutMs, callsMax: methods.length > 0 ? callsMax : undefined, methods });
    const hello = { features: FEATURES, contentLenMax, streamsMax, window, cancelBurst, parts: new Map([[PART_NAME, part]]) };
    this.#send(encodeFrame(0, Operation.Control, encodeHello(hello)));
    this.#send(encodeFrame(0, Operation.Ping));
    const interval = this.settings.pingIntervalMs;
    this.#heardAt = Date.now();
    this.#heartbeat = setInterval(() => {
      const silentMs = Date.now() - this.#heardAt;
      if (silentMs > 2 * interval) {
        this.fail(`nothing was heard for ${silentMs} ms`);
      } else {
        this.#send(encodeFrame(0, Operation.Ping));
      }
    }, interval);
  }

  #receive(data: unknown): void {
    this.#heardAt = Date.now();
    try {
      if (!(data instanceof ArrayBuffer)) {
        throw new ProtocolError("it sent text, where frames are binary");
      }
      for (const frame of this.#decoder.push(new Uint8Array(data))) {
        this.#handle(frame);
        if (this.#closedBy !== undefined) {
          return;
        }
      }
    } catch (error) {
      this.fail((error as Error).message);
    }
  }

  #handle({ id, operation, content }: Frame): void {
    if (this.#peer === undefined) {
      const control = operation === Operation.Control ? decodeControl(content) : undefined;
      if (control?.kind !== "hello") {
        throw new ProtocolError("it speaks plain fRPC, without the extension that this client needs");
      }
      this.#meet(control.hello);
      return;
    }
    switch (operation) {
      case Operation.Ping:
        this.#answer(encodeFrame(id, Operation.Pong));
        break;
      case Operation.Stream:
        this.#handleData(id, content);
        break;
      case Operation.Control: {
        const control = decodeControl(content);
        if (control !== undefined) {
          this.#handleControl(id, control);
        }
        break;
      }
      case Operation.Extended:
        if (content[0] === Kind.Answer || content[0] === Kind.Failure) {
          this.#pending.answer(id, content);
        } else if (content[0] === Kind.Request || content[0] === Kind.Describe) {
          this.#handler.packet(id, content);
        }
        break;
    }
  }

  #meet(hello: Hello): void {
    this.#peer = hello;
    const part = hello.parts.get(PART_NAME);
    if (part !== undefined) {
      this.#part = decodePart(part);
    }
    this.#methods = new Map(this.#part.methods.map((method) => [method.path, method]));
    this.#handler.ready();
  }

  #handleData(id: number, content: Uint8Array): void {
    let stream = this.#streams.get(id);
    if (content.length === 0) {
      stream?.handleClose();
      return;
    }
    const isNew = stream === undefined;
    if (stream === undefined) {
      if (id <= OWN_STREAMS.last) {
        // The data was sent before the peer received our close.
        return;
      }
      if (this.#theirStreams >= this.settings.streamsMax) {
        this.#answer(encodeFrame(id, Operation.Stream));
        return;
      }
      stream = this.#newStream(id);
    }
    stream.handleData(content);
    if (isNew) {
      this.#handler.stream(stream);
    }
  }

  #handleControl(id: number, control: Control): void {
    switch (control.kind) {
      case "credit":
        if (this.#shares(Feature.Credit)) {
          this.#streams.get(id)?.handleCredit(control.len);
        }
        break;
      case "goaway":
        this.#isLeaving = true;
        this.#pending.leave();
        this.#handler.leaving(control.text);
        this.closeIfLeft();
        break;
      case "cancel":
        if (!this.#cancelsAllowed.take(Date.now())) {
          throw new ProtocolError(`it cancels more than ${this.settings.cancelBurst} calls at once`);
        }
        if (control.operation === Operation.Extended && this.#handler.cancel(id)) {
          this.#answer(encodeFrame(id, Operation.Control, encodeCancelled(control.operation)));
        }
        break;
      case "cancelled":
        this.#pending.cancelled(id);
        break;
    }
  }

  #newStream(id: number): Stream {
    const isTheirs = id > OWN_STREAMS.last;
    const send = (frame: Uint8Array<ArrayBuffer>) => (isTheirs ? this.#answer(frame) : this.#send(frame));
    const outbox = this.#outbox;
    const port = {
      get isBehind(): boolean {
        return outbox.waiting > BEHIND_LEN;
      },
      sendData: (content: Uint8Array) => {
        this.#checkLen(content);
        send(encodeFrame(id, Operation.Stream, content));
      },
      sendCredit: (len: number) => {
        if (this.#shares(Feature.Credit)) {
          this.#send(encodeFrame(id, Operation.Control, encodeCredit(len)));
        }
      },
      sendClose: () => send(encodeFrame(id, Operation.Stream, NOTHING)),
      ended: () => {
        this.#streams.delete(id);
        this.#theirStreams -= isTheirs ? 1 : 0;
        this.closeIfLeft();
      },
    };
    const credit = this.#shares(Feature.Credit) ? (this.#peer?.window ?? Infinity) : Infinity;
    const stream = new Stream(id, port, credit, this.settings.window, this.settings.contentLenMax);
    this.#streams.set(id, stream);
    this.#theirStreams += isTheirs ? 1 : 0;
    return stream;
  }

  #shares(feature: number): boolean {
    return ((this.#peer?.features ?? 0) & feature) !== 0;
  }

  /** As the protocol requires, a sender uses only half of the receiver's limit. */
  #cancels(burst: number): Allowance {
    this.#ownCancels ??= new Allowance(Math.floor(burst / 2), Date.now());
    return this.#ownCancels;
  }

  /** Sends an answer to the peer. Closes the connection if the peer keeps sending requests without reading the answers. */
  #answer(frame: Uint8Array<ArrayBuffer>): void {
    this.#unread = Math.min(this.#unread, this.#outbox.waiting) + frame.length;
    if (this.#unread > this.settings.unreadLenMax) {
      this.fail(`it asks and does not read the answers: more than ${this.settings.unreadLenMax} bytes wait for it (unreadLenMax)`);
      return;
    }
    this.#send(frame);
  }

  #send(frame: Uint8Array<ArrayBuffer>): void {
    if (this.#closedBy === undefined) {
      this.#outbox.push(frame);
    }
  }
}

/** LEAVES announces that a peer may close a leaving connection itself, after the last answer has arrived. */
const FEATURES = Feature.Credit | Feature.Cancel | Feature.GoAway | Feature.Pieces | Feature.Leaves;

/** Streams wait while more than this is unsent. The credit of a peer alone could exceed our memory. */
const BEHIND_LEN = 4 * 1024 * 1024;

/** The ids of streams opened by the connecting side. All other ids belong to the server. */
const OWN_STREAMS = { first: 1, last: 0x7fff } as const;
