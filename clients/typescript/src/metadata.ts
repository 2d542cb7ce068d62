import { Reader, text, utf8, Writer } from "./wire/bytes.js";

/** A metadata value: text, or bytes for a name with the suffix `-bin`. */
export type MetadataValue = string | Uint8Array;

/** Values accepted as metadata. */
export type MetadataInit =
  | Metadata
  | Iterable<readonly [name: string, value: MetadataValue]>
  | Readonly<Record<string, MetadataValue | readonly MetadataValue[]>>;

/**
 * Names and values sent with a call or an answer, in addition to messages.
 *
 * Values keep their order, and a name may occur several times. Names are lowercase. Names with the suffix `-bin` have bytes as values;
 * others have printable ASCII.
 *
 * ```ts
 * const metadata = new Metadata({ authorization: "Bearer …", "trace-bin": new Uint8Array([1, 2]) });
 * metadata.append("tag", "a");
 * ```
 *
 * Web `Headers`, objects and lists of pairs are accepted wherever metadata is expected.
 */
export class Metadata implements Iterable<[name: string, value: MetadataValue]> {
  #entries: [string, MetadataValue][] = [];

  constructor(init?: MetadataInit) {
    if (init === undefined) {
      return;
    }
    if (Symbol.iterator in init) {
      for (const [name, value] of init as Iterable<readonly [string, MetadataValue]>) {
        this.append(name, value);
      }
      return;
    }
    for (const [name, value] of Object.entries(init)) {
      for (const one of Array.isArray(value) ? (value as MetadataValue[]) : [value as MetadataValue]) {
        this.append(name, one);
      }
    }
  }

  /** The number of values. */
  get size(): number {
    return this.#entries.length;
  }

  /** Returns the first text value of a name. */
  get(name: string): string | undefined {
    const value = this.#first(name);
    return typeof value === "string" ? value : undefined;
  }

  /** Returns the first binary value of a name with the suffix `-bin`. */
  getBinary(name: string): Uint8Array | undefined {
    const value = this.#first(name);
    return typeof value === "string" ? undefined : value;
  }

  /** Returns all values of a name. */
  getAll(name: string): MetadataValue[] {
    const key = name.toLowerCase();
    return this.#entries.filter(([known]) => known === key).map(([, value]) => value);
  }

  has(name: string): boolean {
    return this.#first(name) !== undefined;
  }

  /** Adds a value after the existing values of the name. Throws a `TypeError` for an invalid name or value. */
  append(name: string, value: MetadataValue): this {
    const key = name.toLowerCase();
    if (!NAME.test(key) || key.length > 0xffff) {
      throw new TypeError(`"${name}" is not a valid metadata name: use letters, digits and "-_."`);
    }
    if (key.endsWith("-bin") !== (typeof value !== "string")) {
      throw new TypeError(`the value of "${name}" has to be ${key.endsWith("-bin") ? "bytes" : "text"}`);
    }
    if (typeof value === "string" && !PRINTABLE.test(value)) {
      throw new TypeError(`the value of "${name}" is not printable ASCII; use a name with the suffix "-bin" for bytes`);
    }
    this.#entries.push([key, value]);
    return this;
  }

  /** Replaces all values of a name. */
  set(name: string, value: MetadataValue): this {
    this.delete(name);
    return this.append(name, value);
  }

  delete(name: string): void {
    const key = name.toLowerCase();
    this.#entries = this.#entries.filter(([known]) => known !== key);
  }

  [Symbol.iterator](): IterableIterator<[name: string, value: MetadataValue]> {
    return this.#entries[Symbol.iterator]();
  }

  #first(name: string): MetadataValue | undefined {
    const key = name.toLowerCase();
    return this.#entries.find(([known]) => known === key)?.[1];
  }
}

/** Returns the size counted against the metadata limits of peers: per value its length, the length of its name, and 34. */
export function metadataSize(metadata: Metadata): number {
  let size = 0;
  for (const [name, value] of metadata) {
    size += name.length + value.length + 34;
  }
  return size;
}

/** Encodes one value as an envelope field. */
export function encodeEntry(name: string, value: MetadataValue): Uint8Array {
  const bytes = typeof value === "string" ? utf8(value) : value;
  return new Writer(2 + name.length + bytes.length).u16(name.length).raw(utf8(name)).raw(bytes).finish();
}

/** Decodes one value. Returns `false` if it is not valid metadata. */
export function decodeEntry(field: Reader, into: Metadata): boolean {
  const name = text(field.take(field.u16()));
  const bytes = field.rest();
  try {
    into.append(name, name.endsWith("-bin") ? bytes : text(bytes));
    return true;
  } catch {
    return false;
  }
}

const NAME = /^[0-9a-z_.-]+$/;
const PRINTABLE = /^[\x20-\x7e]*$/;
