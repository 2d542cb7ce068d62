import { ProtocolError, Reader, Writer } from "./bytes.js";

/** The operations below the range of the application. */
export const Operation = {
  Ping: 0,
  Pong: 1,
  Stream: 2,
  Control: 3,
  Extended: 4,
  Piece: 5,
  FirstOfApplication: 10,
} as const;

/** A frame: a header of ten bytes, and its content. */
export interface Frame {
  readonly id: number;
  readonly operation: number;
  readonly content: Uint8Array;
}

export const NOTHING: Uint8Array = new Uint8Array(0);

const MAGIC = 0x000f;
export const HEADER_LEN = 10;

export function encodeFrame(id: number, operation: number, content: Uint8Array = NOTHING): Uint8Array<ArrayBuffer> {
  return new Writer(HEADER_LEN + content.length)
    .u16(MAGIC)
    .u16(id)
    .u16(operation)
    .u32(content.length)
    .raw(content)
    .finish();
}

/** Splits a byte stream received in chunks into frames. */
export class FrameDecoder {
  readonly #contentLenMax: number;
  readonly #pieces: Pieces;
  /** An incomplete frame. The buffer doubles when it grows, so a frame in many small chunks is copied only a few times. */
  #begun: Writer | undefined;
  /** The number of bytes needed for the next whole frame. */
  #needed = HEADER_LEN;

  constructor(contentLenMax: number) {
    this.#contentLenMax = contentLenMax;
    this.#pieces = new Pieces(contentLenMax);
  }

  /** Takes the next bytes and returns all frames completed by them. Content sent in pieces becomes one frame. */
  *push(chunk: Uint8Array): Generator<Frame> {
    let bytes = chunk;
    if (this.#begun !== undefined) {
      this.#begun.raw(chunk);
      if (this.#begun.length < this.#needed) {
        return;
      }
      bytes = this.#begun.finish();
    }
    let at = 0;
    for (;;) {
      const left = bytes.length - at;
      this.#needed = HEADER_LEN;
      if (left < HEADER_LEN) {
        break;
      }
      const header = new Reader(bytes.subarray(at, at + HEADER_LEN));
      if (header.u16() !== MAGIC) {
        throw new ProtocolError("a frame does not begin with the magic number of frisbee");
      }
      const id = header.u16();
      const operation = header.u16();
      const len = header.u32();
      if (len > this.#contentLenMax) {
        throw new ProtocolError(`a content of ${len} bytes is announced, of at most ${this.#contentLenMax} (contentLenMax)`);
      }
      this.#needed = HEADER_LEN + len;
      if (left < this.#needed) {
        break;
      }
      const content = bytes.subarray(at + HEADER_LEN, at + this.#needed);
      at += this.#needed;
      const frame = { id, operation, content };
      const whole = operation === Operation.Piece ? this.#pieces.push(frame) : frame;
      if (whole !== undefined) {
        yield whole;
      }
    }
    this.#begun = at === bytes.length ? undefined : new Writer(bytes.length - at).raw(bytes.subarray(at));
  }
}

/** Joins content sent in pieces (section 10 of the protocol). Only one content is in progress at a time. */
class Pieces {
  readonly #contentLenMax: number;
  #underWay: { id: number; operation: number; total: number; content: Writer } | undefined;

  constructor(contentLenMax: number) {
    this.#contentLenMax = contentLenMax;
  }

  push({ id, content }: Frame): Frame | undefined {
    let bytes = content;
    if (this.#underWay === undefined) {
      const first = new Reader(content);
      const operation = first.u16();
      const total = first.u32();
      bytes = first.rest();
      if (operation !== Operation.Stream && operation !== Operation.Extended && operation < Operation.FirstOfApplication) {
        throw new ProtocolError(`a content in pieces has the operation ${operation}`);
      }
      if (total > this.#contentLenMax) {
        throw new ProtocolError(`a content of ${total} bytes is announced, of at most ${this.#contentLenMax} (contentLenMax)`);
      }
      this.#underWay = { id, operation, total, content: new Writer() };
    }
    const whole = this.#underWay;
    if (id !== whole.id || bytes.length === 0 || whole.content.length + bytes.length > whole.total) {
      throw new ProtocolError("a piece does not belong to the content that is under way");
    }
    whole.content.raw(bytes);
    if (whole.content.length < whole.total) {
      return undefined;
    }
    this.#underWay = undefined;
    return { id, operation: whole.operation, content: whole.content.finish() };
  }
}
