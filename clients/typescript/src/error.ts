import { fromBinary } from "@bufbuild/protobuf";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type Any, AnySchema, anyUnpack } from "@bufbuild/protobuf/wkt";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { Metadata } from "./metadata.js";

/** The codes of failures, as in gRPC. */
export const Code = {
  Canceled: 1,
  Unknown: 2,
  InvalidArgument: 3,
  DeadlineExceeded: 4,
  NotFound: 5,
  AlreadyExists: 6,
  PermissionDenied: 7,
  ResourceExhausted: 8,
  FailedPrecondition: 9,
  Aborted: 10,
  OutOfRange: 11,
  Unimplemented: 12,
  Internal: 13,
  Unavailable: 14,
  DataLoss: 15,
  Unauthenticated: 16,
} as const;

/** The code of a failure. */
export type Code = (typeof Code)[keyof typeof Code];

/** Optional parts of a failure. */
export interface RpcErrorOptions {
  /** Metadata of the failure. */
  metadata?: Metadata;
  /** An encoded `google.rpc.Status`. */
  details?: Uint8Array;
  /** `true` if no part of the call was sent, so that it can be repeated. */
  notSent?: boolean;
  cause?: unknown;
}

/**
 * A failed call. The cause may be the server, the connection, a timeout, or an abort by the caller.
 *
 * ```ts
 * try {
 *   await orders.get({ id: 7n });
 * } catch (error) {
 *   if (error instanceof RpcError && error.code === Code.NotFound) …
 * }
 * ```
 */
export class RpcError extends Error {
  override readonly name: string = "RpcError";
  readonly code: Code;
  /** The text without the name of the code; `message` starts with that name. */
  readonly rawMessage: string;
  readonly metadata: Metadata;
  /** `true` if no part of the call was sent, so that it can be repeated. */
  readonly notSent: boolean;
  readonly #details: Uint8Array | undefined;

  constructor(code: Code, message: string, options: RpcErrorOptions = {}) {
    super(message === "" ? codeName(code) : `${codeName(code)}: ${message}`, { cause: options.cause });
    this.code = code;
    this.rawMessage = message;
    this.metadata = options.metadata ?? new Metadata();
    this.notSent = options.notSent ?? false;
    this.#details = options.details;
  }

  /** The details of the failure, as packed by the server. Empty if there are none, or if they cannot be decoded. */
  get details(): Any[] {
    return this.#details === undefined ? [] : readDetails(this.#details);
  }

  /** The encoded `google.rpc.Status` of the failure. */
  get encodedStatus(): Uint8Array | undefined {
    return this.#details;
  }

  /** Returns the details with a message type. */
  findDetails<S extends DescMessage>(schema: S): MessageShape<S>[] {
    return this.details.flatMap((any) => {
      try {
        return anyUnpack(any, schema) ?? [];
      } catch {
        return [];
      }
    });
  }

  /** Converts any failure to an error with a code. A failure without a code becomes `Code.Unknown`. */
  static from(failure: unknown): RpcError {
    if (failure instanceof RpcError) {
      return failure;
    }
    const message = failure instanceof Error ? failure.message : String(failure);
    return new RpcError(Code.Unknown, message, { cause: failure });
  }
}

/** Returns the name of a code, such as `not_found`. */
export function codeName(code: number): string {
  const name = Object.entries(Code).find(([, value]) => value === code)?.[0];
  return name === undefined ? `code ${code}` : name.replace(/(?<!^)[A-Z]/g, "_$&").toLowerCase();
}

/** Returns the code with a number. Numbers outside gRPC become `Code.Unknown`. */
export function codeOf(number: number): Code {
  return number >= Code.Canceled && number <= Code.Unauthenticated ? (number as Code) : Code.Unknown;
}

/** Reads field 3 of a `google.rpc.Status`. */
function readDetails(status: Uint8Array): Any[] {
  const details: Any[] = [];
  try {
    const reader = new BinaryReader(status);
    while (reader.pos < reader.len) {
      const [field, type] = reader.tag();
      if (field === 3 && type === WireType.LengthDelimited) {
        details.push(fromBinary(AnySchema, reader.bytes()));
      } else {
        reader.skip(type);
      }
    }
  } catch {
    return [];
  }
  return details;
}
