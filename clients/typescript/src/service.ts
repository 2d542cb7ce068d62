import type {
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { Metadata } from "./metadata.js";

/** The circumstances of a call, for the handler that answers it. */
export interface HandlerContext {
  /** Metadata of the caller. */
  readonly requestHeader: Metadata;
  /** Metadata in front of the answer: fill it before the first message. */
  readonly responseHeader: Metadata;
  /** Metadata behind the answer. */
  readonly responseTrailer: Metadata;
  /** Aborted when nobody waits for the answer any more: the server gave the call up, its time is over, or the connection is gone. */
  readonly signal: AbortSignal;
}

/** A service as an object with a function for each method. */
export type ServiceImpl<S extends DescService> = {
  [Name in keyof S["method"]]: MethodImpl<S["method"][Name]>;
};

/** A method as a function: a stream is an async iterable, whichever way it goes. */
export type MethodImpl<M> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, context: HandlerContext) => Promise<MessageInitShape<O>> | MessageInitShape<O>
  : M extends DescMethodServerStreaming<infer I, infer O>
    ? (request: MessageShape<I>, context: HandlerContext) => AsyncIterable<MessageInitShape<O>>
  : M extends DescMethodClientStreaming<infer I, infer O>
    ? (requests: AsyncIterable<MessageShape<I>>, context: HandlerContext) => Promise<MessageInitShape<O>>
  : M extends DescMethodBiDiStreaming<infer I, infer O>
    ? (requests: AsyncIterable<MessageShape<I>>, context: HandlerContext) => AsyncIterable<MessageInitShape<O>>
  : never;

/** A service that this side offers to the server. Made by {@link implement}. */
export interface OfferedService {
  readonly methods: readonly OfferedMethod[];
}

/** One method of it. */
export interface OfferedMethod {
  readonly method: DescMethod;
  readonly handler: (input: any, context: HandlerContext) => unknown;
}

/**
 * Implements a service that the server can call, on the connection that this side made. Methods that are left out are not offered.
 *
 * ```ts
 * const channel = createChannel("wss://example.org/", {
 *   services: [implement(Notices, { async show({ text }) { alert(text); return {}; } })],
 * });
 * ```
 */
export function implement<S extends DescService>(service: S, handlers: Partial<ServiceImpl<S>>): OfferedService {
  const methods = service.methods.flatMap((method) => {
    const handler = (handlers as Record<string, OfferedMethod["handler"] | undefined>)[method.localName];
    return handler === undefined ? [] : [{ method, handler: handler.bind(handlers) }];
  });
  return { methods };
}
