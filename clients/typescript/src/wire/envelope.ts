import { codeName, codeOf, Code, RpcError } from "../error.js";
import { decodeEntry, encodeEntry, Metadata, metadataSize } from "../metadata.js";
import { ProtocolError, Reader, text, utf8, Writer } from "./bytes.js";
import { microseconds } from "./hello.js";

/** The first byte of an EXTENDED packet, and of stream data (sections 8 and 9 of the protocol). */
export const Kind = {
  Request: 0x01,
  Answer: 0x02,
  Failure: 0x03,
  Describe: 0x04,
  Open: 0x10,
  Messages: 0x11,
  Head: 0x12,
  End: 0x13,
  Compressed: 0x14,
} as const;

const Tag = { Timeout: 1, Metadata: 2, Trailer: 3, Code: 4, Text: 5, Details: 6, Compression: 7 } as const;

/** The head of a message, or of an answer without a message. */
export interface Head {
  readonly timeoutMs: number | undefined;
  readonly metadata: Metadata;
  readonly trailers: Metadata;
  readonly code: number | undefined;
  readonly text: string;
  readonly details: Uint8Array | undefined;
}

/** The start of a unary or streaming call: REQUEST and OPEN. */
export interface Call {
  readonly operation: number;
  readonly format: number;
  readonly timeoutMs?: number | undefined;
  readonly metadata?: Metadata | undefined;
}

export function encodeRequest(call: Call, message: Uint8Array): Uint8Array {
  return begin(Kind.Request, call, message.length).raw(message).finish();
}

export function encodeOpen(call: Call): Uint8Array {
  return begin(Kind.Open, call, 0).finish();
}

export function encodeAnswer(metadata: Metadata, trailers: Metadata, message: Uint8Array): Uint8Array {
  const out = new Writer(64 + message.length).u8(Kind.Answer);
  return head(out, (fields) => {
    putMetadata(fields, Tag.Metadata, metadata);
    putMetadata(fields, Tag.Trailer, trailers);
  }).raw(message).finish();
}

export function encodeFailure(error: RpcError): Uint8Array {
  return head(new Writer(128).u8(Kind.Failure), (fields) => {
    fields.field(Tag.Code, new Uint8Array([error.code]));
    fields.field(Tag.Text, utf8(error.rawMessage));
    if (error.encodedStatus !== undefined) {
      fields.field(Tag.Details, error.encodedStatus);
    }
    putMetadata(fields, Tag.Metadata, error.metadata);
  }).finish();
}

export function encodeHead(metadata: Metadata): Uint8Array {
  return head(new Writer(64).u8(Kind.Head), (fields) => putMetadata(fields, Tag.Metadata, metadata)).finish();
}

export function encodeEnd(trailers: Metadata): Uint8Array {
  return head(new Writer(16).u8(Kind.End), (fields) => putMetadata(fields, Tag.Trailer, trailers)).finish();
}

export function encodeMessages(messages: readonly Uint8Array[]): Uint8Array {
  const out = new Writer(messages.reduce((len, message) => len + 4 + message.length, 1)).u8(Kind.Messages);
  for (const message of messages) {
    out.u32(message.length).raw(message);
  }
  return out.finish();
}

/** Decodes a REQUEST or OPEN after its kind. The message of a REQUEST remains in the reader. */
export function decodeCall(body: Reader, metadataMax: number): Call & { readonly head: Head } {
  const operation = body.u16();
  const format = body.u8();
  const head = decodeHead(body, metadataMax);
  return { operation, format, head, timeoutMs: head.timeoutMs, metadata: head.metadata };
}

/** Decodes a head. Throws an {@link RpcError} for a truncated head or too much metadata: the call fails, not the connection. */
export function decodeHead(body: Reader, metadataMax: number): Head {
  const metadata = new Metadata();
  const trailers = new Metadata();
  let timeoutMs: number | undefined;
  let code: number | undefined;
  let said = "";
  let details: Uint8Array | undefined;
  try {
    const fields = new Reader(body.take(body.u32())).fields();
    for (const [tag, value] of fields) {
      switch (tag) {
        case Tag.Timeout:
          timeoutMs = Number(value.u64()) / 1000;
          break;
        case Tag.Metadata:
        case Tag.Trailer:
          if (!decodeEntry(value, tag === Tag.Metadata ? metadata : trailers)) {
            throw new RpcError(Code.Internal, "the peer sent metadata that is none");
          }
          break;
        case Tag.Code:
          code = value.u8();
          break;
        case Tag.Text:
          said = text(value.rest());
          break;
        case Tag.Details:
          details = value.rest();
          break;
        case Tag.Compression:
          throw new RpcError(Code.Unimplemented, "the peer sent a compressed message, which this side did not offer to inflate");
      }
    }
  } catch (error) {
    if (error instanceof ProtocolError) {
      throw new RpcError(Code.Internal, `the peer sent a head that cannot be read: ${error.message}`);
    }
    throw error;
  }
  if (metadataSize(metadata) + metadataSize(trailers) > metadataMax) {
    throw new RpcError(Code.ResourceExhausted, `the peer sent more than ${metadataMax} bytes of metadata (metadataLenMax)`);
  }
  return { timeoutMs, metadata, trailers, code, text: said, details };
}

/** Decodes MESSAGES after their kind. */
export function* decodeMessages(body: Reader): Generator<Uint8Array> {
  while (body.remaining > 0) {
    yield body.take(body.u32());
  }
}

/** Returns the failure in the head of a FAILURE. */
export function failureOf(head: Head): RpcError {
  const code = codeOf(head.code ?? Code.Unknown);
  const known = head.code === undefined || head.code === code;
  return new RpcError(code, known ? head.text : `${head.text} (${codeName(head.code)})`, {
    metadata: head.metadata,
    ...(head.details === undefined ? {} : { details: head.details }),
  });
}

/** Throws if the metadata exceeds the limit of the peer. */
export function checkMetadata(metadata: Metadata, max: number): void {
  const size = metadataSize(metadata);
  if (size > max) {
    throw new RpcError(Code.ResourceExhausted, `the metadata has ${size} bytes, more than the ${max} that the peer accepts`, { notSent: true });
  }
}

function begin(kind: number, call: Call, messageLen: number): Writer {
  const out = new Writer(64 + messageLen).u8(kind).u16(call.operation).u8(call.format);
  return head(out, (fields) => {
    if (call.timeoutMs !== undefined) {
      fields.u8(Tag.Timeout).u32(8).u64(microseconds(call.timeoutMs));
    }
    if (call.metadata !== undefined) {
      putMetadata(fields, Tag.Metadata, call.metadata);
    }
  });
}

function head(out: Writer, write: (fields: Writer) => void): Writer {
  const fields = new Writer();
  write(fields);
  return out.u32(fields.length).raw(fields.finish());
}

function putMetadata(out: Writer, tag: number, metadata: Metadata): void {
  for (const [name, value] of metadata) {
    out.field(tag, encodeEntry(name, value));
  }
}
