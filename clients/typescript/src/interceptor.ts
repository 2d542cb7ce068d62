import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { CallOptions } from "./call.js";
import { Code, RpcError } from "./error.js";
import { Metadata } from "./metadata.js";

/** A call as seen by interceptors. They may change it before passing it on. */
export interface InterceptedCall {
  readonly method: DescMethod;
  /** One request, or an async iterable of requests, depending on the method. */
  input: unknown;
  readonly headers: Metadata;
  timeoutMs: number | undefined;
  signal: AbortSignal | undefined;
  onHeader: ((headers: Metadata) => void) | undefined;
  onTrailer: ((trailers: Metadata) => void) | undefined;
}

/** Makes a call and returns its answers: one, or a stream. */
export type NextCall = (call: InterceptedCall) => AsyncIterable<Message>;

/**
 * Code around calls of all kinds, for tokens, logs or retries. The first interceptor of a channel sees each call first and its answers
 * last.
 *
 * ```ts
 * const withToken: Interceptor = async function* (call, next) {
 *   call.headers.set("authorization", `Bearer ${await token()}`);
 *   yield* next(call);
 * };
 * const channel = createChannel("wss://example.org/", { interceptors: [withToken] });
 * ```
 */
export type Interceptor = (call: InterceptedCall, next: NextCall) => AsyncIterable<Message>;

/** Returns the options of a call after its interceptors. */
export function optionsOf({ headers, timeoutMs, signal, onHeader, onTrailer }: InterceptedCall): CallOptions {
  return {
    ...(headers.size > 0 && { headers }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(signal !== undefined && { signal }),
    ...(onHeader !== undefined && { onHeader }),
    ...(onTrailer !== undefined && { onTrailer }),
  };
}

/** Makes a call through interceptors. */
export function intercept(
  interceptors: readonly Interceptor[],
  method: DescMethod,
  input: unknown,
  { headers, timeoutMs, signal, onHeader, onTrailer }: CallOptions,
  end: NextCall,
): AsyncIterable<Message> {
  const next = interceptors.reduceRight<NextCall>((inner, interceptor) => (call) => interceptor(call, inner), end);
  return next({ method, input, headers: new Metadata(headers), timeoutMs, signal, onHeader, onTrailer });
}

/** Returns the single answer of a call, after waiting for its end. */
export async function only<T>(answers: AsyncIterable<T>): Promise<T> {
  let first: { answer: T } | undefined;
  for await (const answer of answers) {
    first ??= { answer };
  }
  if (first === undefined) {
    throw new RpcError(Code.Internal, "the call ended without an answer");
  }
  return first.answer;
}
