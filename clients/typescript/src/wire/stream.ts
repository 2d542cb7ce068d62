import { Code, RpcError } from "../error.js";
import { ProtocolError } from "./bytes.js";

/** The cost of a data frame in addition to its content. */
const FRAME_COST = 64;
const CREDIT_MAX = 2 ** 31 - 1;
/** The polling interval for unsent data: WebSockets have no event for it. */
const BEHIND_MS = 10;

/** The parts of a connection needed by a stream. */
export interface StreamPort {
  sendData(content: Uint8Array): void;
  sendCredit(len: number): void;
  sendClose(): void;
  /** Called when the stream has ended, on either side. */
  ended(): void;
  /** `true` while too much data is unsent, independently of credit. */
  readonly isBehind: boolean;
}

/** A stream of a connection. It has one reader and one writer; both wait for the peer, as limited by the credit of section 4. */
export class Stream {
  readonly id: number;
  /** Called when the stream ends, on either side. */
  onEnd: (() => void) | undefined;
  readonly #port: StreamPort;
  /** The number of bytes that may be sent. `Infinity` if the peer does not use credit. */
  #credit: number;
  /** The number of bytes that the peer may send before the reader has read more. */
  readonly #window: number;
  readonly #contentLenMax: number;
  readonly #queue: Uint8Array[] = [];
  #queued = 0;
  /** The cost of the data that the reader took last and is still processing. */
  #taken = 0;
  #owed = 0;
  #isOpen = true;
  #failure: Error | undefined;
  #reader: (() => void) | undefined;
  #writer: (() => void) | undefined;

  constructor(id: number, port: StreamPort, credit: number, window: number, contentLenMax: number) {
    this.id = id;
    this.#port = port;
    this.#credit = Math.min(credit, credit === Infinity ? Infinity : CREDIT_MAX);
    this.#window = window;
    this.#contentLenMax = contentLenMax;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Returns the next data, or `undefined` when the stream is closed and all data was read. Throws if the stream failed. */
  async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      this.#giveBack();
      const content = this.#queue.shift();
      if (content !== undefined) {
        this.#taken = content.length + FRAME_COST;
        this.#queued -= this.#taken;
        return content;
      }
      if (this.#failure !== undefined) {
        throw this.#failure;
      }
      if (!this.#isOpen) {
        return undefined;
      }
      await new Promise<void>((resolve) => {
        this.#reader = resolve;
      });
    }
  }

  /** Sends data when credit is available. Returns `false` if the stream is closed, and throws if it failed. */
  async send(content: Uint8Array): Promise<boolean> {
    while (this.#isOpen && (this.#credit <= 0 || this.#port.isBehind)) {
      await new Promise<void>((resolve) => {
        this.#writer = resolve;
        if (this.#credit > 0) {
          setTimeout(resolve, BEHIND_MS);
        }
      });
    }
    return this.trySend(content);
  }

  /** Sends data without waiting for credit. The first data of a stream may be sent like this. */
  trySend(content: Uint8Array): boolean {
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
    if (!this.#isOpen) {
      return false;
    }
    this.#credit -= content.length + FRAME_COST;
    this.#port.sendData(content);
    return true;
  }

  /** Ends the stream and notifies the peer. Received data stays readable. */
  close(): void {
    if (this.#isOpen) {
      this.#port.sendClose();
      this.#end();
    }
  }

  /** Ends the stream and notifies the peer. Reads and writes fail with `error`. */
  abort(error: Error): void {
    this.#failure ??= error;
    this.#queue.length = 0;
    this.close();
    this.#wake();
  }

  handleData(content: Uint8Array): void {
    const cost = content.length + FRAME_COST;
    // A small queued frame must not keep the large buffer of its whole message in memory.
    this.#queue.push(2 * content.length < content.buffer.byteLength ? content.slice() : content);
    this.#queued += cost;
    // When an id is reused, the peer may also receive the credit of the old stream. Its last frame may exceed the remaining credit.
    if (this.#queued > 2 * this.#window + this.#contentLenMax + FRAME_COST) {
      this.abort(new RpcError(Code.ResourceExhausted, "the peer sent more on a stream than its credit"));
      return;
    }
    this.#wakeReader();
  }

  handleClose(): void {
    this.#end();
  }

  handleCredit(len: number): void {
    this.#credit += len;
    if (this.#credit !== Infinity && this.#credit > CREDIT_MAX) {
      throw new ProtocolError("the peer gives a stream more credit than there can be");
    }
    if (this.#credit > 0) {
      this.#wakeWriter();
    }
  }

  /** Fails the stream after the connection is lost. */
  handleLoss(error: Error): void {
    this.#failure ??= error;
    this.#end();
  }

  #giveBack(): void {
    this.#owed += this.#taken;
    this.#taken = 0;
    // Half a window is returned at a time. The sender continues with the other half meanwhile.
    if (this.#isOpen && this.#owed > 0 && this.#owed >= this.#window / 2) {
      this.#port.sendCredit(this.#owed);
      this.#owed = 0;
    }
  }

  #end(): void {
    if (this.#isOpen) {
      this.#isOpen = false;
      this.onEnd?.();
      this.#port.ended();
    }
    this.#wake();
  }

  #wake(): void {
    this.#wakeReader();
    this.#wakeWriter();
  }

  #wakeReader(): void {
    const wake = this.#reader;
    this.#reader = undefined;
    wake?.();
  }

  #wakeWriter(): void {
    const wake = this.#writer;
    this.#writer = undefined;
    wake?.();
  }
}
