import { Code, RpcError } from "../error.js";
import { ProtocolError } from "./bytes.js";

/** The cost of a frame of data besides its content. */
const FRAME_COST = 64;
const CREDIT_MAX = 2 ** 31 - 1;
/** WebSockets do not tell when they have sent something: they are asked so often. */
const BEHIND_MS = 10;

/** The connection, as a stream needs it. */
export interface StreamPort {
  sendData(content: Uint8Array): void;
  sendCredit(len: number): void;
  sendClose(): void;
  /** The stream is over on this side, whichever side ended it. */
  ended(): void;
  /** True while more waits to be sent than should, whatever the credit. */
  readonly isBehind: boolean;
}

/**
 * One stream of a connection. It is read and written by one user each; both wait for the peer, by the credits of section 4.
 */
export class Stream {
  readonly id: number;
  /** Called when the stream ends, whichever side ends it. */
  onEnd: (() => void) | undefined;
  readonly #port: StreamPort;
  /** The bytes that may be sent; without end if the peer gives no credit. */
  #credit: number;
  /** The bytes that the peer may send before the reader has read more. */
  readonly #window: number;
  readonly #contentLenMax: number;
  readonly #queue: Uint8Array[] = [];
  #queued = 0;
  /** The cost of what the reader took last, and is busy with. */
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

  /** Returns the next data, or nothing once the stream was closed and all was read. Throws if it failed. */
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

  /** Sends data once there is credit. Returns false if the stream is closed instead, and throws if it failed. */
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

  /** Sends data without regard to credit, as the first of a stream may be sent. */
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

  /** Ends the stream and tells the peer. What has come stays readable. */
  close(): void {
    if (this.#isOpen) {
      this.#port.sendClose();
      this.#end();
    }
  }

  /** Ends the stream, tells the peer, and has reading and sending fail. */
  abort(error: Error): void {
    this.#failure ??= error;
    this.#queue.length = 0;
    this.close();
    this.#wake();
  }

  handleData(content: Uint8Array): void {
    const cost = content.length + FRAME_COST;
    // A frame that waits in line must not keep all that came in one message with it.
    this.#queue.push(2 * content.length < content.buffer.byteLength ? content.slice() : content);
    this.#queued += cost;
    // An id that is used again may bring the peer the credit of the old stream as well, and its last frame may cost more than is left.
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

  /** The connection is gone. */
  handleLoss(error: Error): void {
    this.#failure ??= error;
    this.#end();
  }

  #giveBack(): void {
    this.#owed += this.#taken;
    this.#taken = 0;
    // At half of a window the sender still has the other half to go on with.
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
