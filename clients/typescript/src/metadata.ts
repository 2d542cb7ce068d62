import { Reader, text, utf8, Writer } from "./wire/bytes.js";

/** A value of metadata: text, or bytes under a name that ends in `-bin`. */
export type MetadataValue = string | Uint8Array;

/** Anything that metadata can be made of. */
export type MetadataInit =
  | Metadata
  | Iterable<readonly [name: string, value: MetadataValue]>
  | Readonly<Record<string, MetadataValue | readonly MetadataValue[]>>;

/**
 * Goes with a call or an answer besides messages: names with values, in order, each name as often as you like. Names have no
 * capital letters; those that end in `-bin` have bytes for values, others printable ASCII.
 *
 * ```ts
 * const metadata = new Metadata({ authorization: "Bearer …", "trace-bin": new Uint8Array([1, 2]) });
 * metadata.append("tag", "a");
 * ```
 *
 * The `Headers` of the web will do wherever metadata is expected, as will objects and lists of pairs.
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

  /** Returns the first text with a name. */
  get(name: string): string | undefined {
    const value = this.#first(name);
    return typeof value === "string" ? value : undefined;
  }

  /** Returns the first bytes with a name, which ends in `-bin`. */
  getBinary(name: string): Uint8Array | undefined {
    const value = this.#first(name);
    return typeof value === "string" ? undefined : value;
  }

  /** Returns all values with a name. */
  getAll(name: string): MetadataValue[] {
    const key = name.toLowerCase();
    return this.#entries.filter(([known]) => known === key).map(([, value]) => value);
  }

  has(name: string): boolean {
    return this.#first(name) !== undefined;
  }

  /** Adds a value behind those that the name has. Throws a `TypeError` for what metadata cannot be. */
  append(name: string, value: MetadataValue): this {
    const key = name.toLowerCase();
    if (!NAME.test(key) || key.length > 0xffff) {
      throw new TypeError(`"${name}" cannot be a name of metadata: letters, digits and "-_." can`);
    }
    if (key.endsWith("-bin") !== (typeof value !== "string")) {
      throw new TypeError(`the value of "${name}" has to be ${key.endsWith("-bin") ? "bytes" : "text"}`);
    }
    if (typeof value === "string" && !PRINTABLE.test(value)) {
      throw new TypeError(`the value of "${name}" is not printable ASCII; bytes go under names that end in "-bin"`);
    }
    this.#entries.push([key, value]);
    return this;
  }

  /** Gives a name this value alone. */
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

/** The size by which peers limit metadata: for each value its length, that of its name, and 34. */
export function metadataSize(metadata: Metadata): number {
  let size = 0;
  for (const [name, value] of metadata) {
    size += name.length + value.length + 34;
  }
  return size;
}

/** Encodes one value as the fields of the envelope have it. */
export function encodeEntry(name: string, value: MetadataValue): Uint8Array {
  const bytes = typeof value === "string" ? utf8(value) : value;
  return new Writer(2 + name.length + bytes.length).u16(name.length).raw(utf8(name)).raw(bytes).finish();
}

/** Decodes one value, and says whether it is metadata at all. */
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
