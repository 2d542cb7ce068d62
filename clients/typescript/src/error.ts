import { fromBinary } from "@bufbuild/protobuf";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { type Any, AnySchema, anyUnpack } from "@bufbuild/protobuf/wkt";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { Metadata } from "./metadata.js";

/** The codes of a failure, those of gRPC. */
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

/** A code of a failure. */
export type Code = (typeof Code)[keyof typeof Code];

/** More about a failure than its code and text. */
export interface RpcErrorOptions {
  /** Metadata that came with the failure, or goes with it. */
  metadata?: Metadata;
  /** A `google.rpc.Status`, encoded. */
  details?: Uint8Array;
  /** True if nothing of the call was sent, so that it can be repeated. */
  notSent?: boolean;
  cause?: unknown;
}

/**
 * A call that failed: by the server, on the way to it, or because its time was up or its caller aborted it.
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
  /** The text alone; `message` begins with the name of the code. */
  readonly rawMessage: string;
  readonly metadata: Metadata;
  /** True if nothing of the call was sent, so that it can be repeated. */
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

  /** The details of the failure, as the server packed them. Empty if there are none, or none that can be read. */
  get details(): Any[] {
    return this.#details === undefined ? [] : readDetails(this.#details);
  }

  /** The `google.rpc.Status` that came, encoded. */
  get encodedStatus(): Uint8Array | undefined {
    return this.#details;
  }

  /** Returns the details that are messages of a type. */
  findDetails<S extends DescMessage>(schema: S): MessageShape<S>[] {
    return this.details.flatMap((any) => {
      try {
        return anyUnpack(any, schema) ?? [];
      } catch {
        return [];
      }
    });
  }

  /** Returns any failure as an error with a code: one that has none is of an unknown kind. */
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

/** Returns the code with a number. One that gRPC does not have is unknown. */
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
