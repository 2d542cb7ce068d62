/** The peer sent invalid bytes. The connection cannot continue. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

/** Writes big-endian integers and bytes into a growing buffer. */
export class Writer {
  #bytes: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #len = 0;

  constructor(capacity = 64) {
    this.#bytes = new Uint8Array(capacity);
    this.#view = new DataView(this.#bytes.buffer);
  }

  u8(value: number): this {
    const at = this.#grow(1);
    this.#view.setUint8(at, value);
    return this;
  }

  u16(value: number): this {
    const at = this.#grow(2);
    this.#view.setUint16(at, value);
    return this;
  }

  u32(value: number): this {
    const at = this.#grow(4);
    this.#view.setUint32(at, value);
    return this;
  }

  u64(value: bigint): this {
    const at = this.#grow(8);
    this.#view.setBigUint64(at, value);
    return this;
  }

  raw(bytes: Uint8Array): this {
    const at = this.#grow(bytes.length);
    this.#bytes.set(bytes, at);
    return this;
  }

  /** Writes a field of a HELLO or an envelope: tag, length, value. */
  field(tag: number, value: Uint8Array): this {
    return this.u8(tag).u32(value.length).raw(value);
  }

  get length(): number {
    return this.#len;
  }

  /** Returns the written bytes. The writer must not be used afterwards. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#len);
  }

  #grow(by: number): number {
    const at = this.#len;
    this.#len += by;
    if (this.#len > this.#bytes.length) {
      const wider = new Uint8Array(Math.max(this.#len, this.#bytes.length * 2));
      wider.set(this.#bytes.subarray(0, at));
      this.#bytes = wider;
      this.#view = new DataView(wider.buffer);
    }
    return at;
  }
}

/** Reads big-endian integers and bytes. Throws a {@link ProtocolError} if too few bytes are left. */
export class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get remaining(): number {
    return this.#bytes.length - this.#at;
  }

  u8(): number {
    return this.#view.getUint8(this.#skip(1));
  }

  u16(): number {
    return this.#view.getUint16(this.#skip(2));
  }

  u32(): number {
    return this.#view.getUint32(this.#skip(4));
  }

  u64(): bigint {
    return this.#view.getBigUint64(this.#skip(8));
  }

  /** Returns the next bytes without copying them. */
  take(len: number): Uint8Array {
    const at = this.#skip(len);
    return this.#bytes.subarray(at, at + len);
  }

  rest(): Uint8Array {
    return this.take(this.remaining);
  }

  /** Reads the remaining fields: tag, length, value. */
  *fields(): Generator<[tag: number, value: Reader]> {
    while (this.remaining > 0) {
      const tag = this.u8();
      yield [tag, new Reader(this.take(this.u32()))];
    }
  }

  #skip(len: number): number {
    const at = this.#at;
    if (len > this.remaining) {
      throw new ProtocolError(`${len} bytes are announced where ${this.remaining} are left`);
    }
    this.#at += len;
    return at;
  }
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function utf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Decodes UTF-8. Invalid bytes become replacement characters. */
export function text(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}
