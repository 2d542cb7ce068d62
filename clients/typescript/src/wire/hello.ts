import { ProtocolError, Reader, text, utf8, Writer } from "./bytes.js";

/** The feature bits in a HELLO. */
export const Feature = {
  Credit: 1 << 0,
  Cancel: 1 << 1,
  GoAway: 1 << 2,
  Pieces: 1 << 3,
  /** A PONG carries the load of its sender. This client has no use for it, and does not announce it. */
  Load: 1 << 5,
  Leaves: 1 << 8,
} as const;

/** The first frame of a side: its features and limits (section 2 of the protocol). */
export interface Hello {
  readonly features: number;
  readonly contentLenMax: number;
  readonly streamsMax?: number | undefined;
  /** The initial credit of a stream. */
  readonly window?: number | undefined;
  readonly cancelBurst?: number | undefined;
  /** Application data, by the name of the application. */
  readonly parts: ReadonlyMap<string, Uint8Array>;
}

/** Encodes a HELLO without the kind of its frame. */
export function encodeHelloBody(hello: Hello): Uint8Array {
  const out = new Writer(256).u8(VERSION);
  const number = (tag: number, value: number | undefined) => {
    if (value !== undefined) {
      out.u8(tag).u32(4).u32(value);
    }
  };
  number(Tag.Features, hello.features);
  number(Tag.ContentLenMax, hello.contentLenMax);
  number(Tag.StreamsMax, hello.streamsMax);
  number(Tag.Window, hello.window);
  number(Tag.CancelBurst, hello.cancelBurst);
  for (const [name, value] of hello.parts) {
    const bytes = utf8(name);
    out.u8(Tag.Application).u32(1 + bytes.length + value.length).u8(bytes.length).raw(bytes).raw(value);
  }
  return out.finish();
}

/** Decodes a HELLO after the kind of its frame. */
export function decodeHelloBody(body: Reader): Hello {
  // Later versions are compatible, because unknown fields are ignored.
  body.u8();
  const numbers = new Map<number, number>();
  const parts = new Map<string, Uint8Array>();
  for (const [tag, value] of body.fields()) {
    if (tag === Tag.Application) {
      const name = text(value.take(value.u8()));
      if (!parts.has(name)) {
        parts.set(name, value.rest());
      }
    } else if (tag >= Tag.Features && tag <= Tag.CancelBurst) {
      const number = value.u32();
      if (!numbers.has(tag)) {
        numbers.set(tag, number);
      }
    }
  }
  return {
    features: numbers.get(Tag.Features) ?? 0,
    contentLenMax: numbers.get(Tag.ContentLenMax) ?? CONTENT_LEN_MAX_UNSAID,
    streamsMax: numbers.get(Tag.StreamsMax),
    window: numbers.get(Tag.Window),
    cancelBurst: numbers.get(Tag.CancelBurst),
    parts,
  };
}

/** The kinds of methods in a method table. */
export const MethodKind = { unary: 0, server_streaming: 1, client_streaming: 2, bidi_streaming: 3 } as const;

/** A method in the method table of a side. */
export interface ServedMethod {
  readonly path: string;
  readonly operation: number;
  readonly kind: number;
}

/** The fRPC part of a HELLO (section 7 of the protocol). */
export interface FrpcPart {
  readonly metadataLenMax: number;
  readonly timeoutMs?: number | undefined;
  readonly callsMax?: number | undefined;
  readonly methods: readonly ServedMethod[];
}

export const PART_NAME = "frpc";

export function encodePart(part: FrpcPart): Uint8Array {
  const out = new Writer(256).u8(PartTag.MetadataLenMax).u32(4).u32(part.metadataLenMax);
  if (part.timeoutMs !== undefined) {
    out.u8(PartTag.Timeout).u32(8).u64(microseconds(part.timeoutMs));
  }
  if (part.callsMax !== undefined) {
    out.u8(PartTag.CallsMax).u32(4).u32(part.callsMax);
  }
  for (const { path, operation, kind } of part.methods) {
    const bytes = utf8(path);
    out.u8(PartTag.Method).u32(METHOD_LEN_MIN + bytes.length).u16(operation).u8(kind);
    out.raw(FINGERPRINTS).raw(bytes);
  }
  return out.finish();
}

export function decodePart(bytes: Uint8Array): FrpcPart {
  let metadataLenMax = 0;
  let timeoutMs: number | undefined;
  let callsMax: number | undefined;
  const methods: ServedMethod[] = [];
  for (const [tag, value] of new Reader(bytes).fields()) {
    switch (tag) {
      case PartTag.MetadataLenMax:
        metadataLenMax = Math.min(value.u32(), 0xffff);
        break;
      case PartTag.Timeout:
        timeoutMs = Number(value.u64()) / 1000;
        break;
      case PartTag.CallsMax:
        callsMax = value.u32();
        break;
      case PartTag.Method: {
        const operation = value.u16();
        const kind = value.u8();
        value.take(FINGERPRINTS.length);
        methods.push({ operation, kind, path: text(value.rest()) });
        break;
      }
    }
  }
  return { metadataLenMax, timeoutMs, callsMax, methods };
}

/** Returns a time in the unit of the wire. */
export function microseconds(ms: number): bigint {
  return BigInt(Math.max(0, Math.min(Math.round(ms * 1000), Number.MAX_SAFE_INTEGER)));
}

/** Returns the number of a method kind. Throws if the kind is unknown. */
export function kindOf(name: string): number {
  const kind = (MethodKind as Record<string, number | undefined>)[name];
  if (kind === undefined) {
    throw new ProtocolError(`methods of the kind ${name} are not known`);
  }
  return kind;
}

const VERSION = 1;
const CONTENT_LEN_MAX_UNSAID = 5 * 1024 * 1024;

const Tag = { Features: 1, ContentLenMax: 2, StreamsMax: 3, Window: 4, CancelBurst: 5, Application: 16 } as const;
const PartTag = { MetadataLenMax: 1, Timeout: 2, CallsMax: 3, Method: 16 } as const;

/**
 * The fingerprints of our methods. They never match messages of the peer, so the peer uses protocol buffers for its calls.
 *
 * Zeros would mean that the fingerprints are unknown, and the peer would use polyglot.
 */
const FINGERPRINTS = new Uint8Array(32).fill(0xff);
const METHOD_LEN_MIN = 2 + 1 + FINGERPRINTS.length;
