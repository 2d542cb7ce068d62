import { create, fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { Code, RpcError } from "./error.js";
import { text, utf8 } from "./wire/bytes.js";

/** Encodes and decodes messages in one format. */
export interface Codec {
  /** The number of the format on the wire. */
  readonly format: number;
  encode<S extends DescMessage>(schema: S, message: MessageInitShape<S>): Uint8Array;
  decode<S extends DescMessage>(schema: S, bytes: Uint8Array): MessageShape<S>;
}

export const proto: Codec = {
  format: 1,
  encode: (schema, message) => toBinary(schema, create(schema, message)),
  decode: (schema, bytes) => fromBinary(schema, bytes),
};

export const json: Codec = {
  format: 2,
  encode: (schema, message) => utf8(toJsonString(schema, create(schema, message))),
  decode: (schema, bytes) => fromJsonString(schema, text(bytes), { ignoreUnknownFields: true }),
};

/** Returns the codec for a format number. */
export function codecOf(format: number): Codec {
  const codec = [proto, json].find((known) => known.format === format);
  if (codec === undefined) {
    throw new RpcError(Code.Unimplemented, `this side speaks protocol buffers and JSON, not format ${format}`);
  }
  return codec;
}

/** Encodes a message of the caller. A failure is the fault of the caller. */
export function encodeOwn<S extends DescMessage>(codec: Codec, schema: S, message: MessageInitShape<S>): Uint8Array {
  try {
    return codec.encode(schema, message);
  } catch (error) {
    throw new RpcError(Code.InvalidArgument, `the ${schema.typeName} cannot be encoded: ${(error as Error).message}`, { cause: error, notSent: true });
  }
}

/** Decodes a message of the peer. `code` is the code of a failure. */
export function decodeTheirs<S extends DescMessage>(codec: Codec, schema: S, bytes: Uint8Array, code: Code): MessageShape<S> {
  try {
    return codec.decode(schema, bytes);
  } catch (error) {
    throw new RpcError(code, `the ${schema.typeName} cannot be decoded: ${(error as Error).message}`, { cause: error });
  }
}
