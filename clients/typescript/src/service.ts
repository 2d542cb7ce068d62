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

/** The context of a call, for its handler. */
export interface HandlerContext {
  /** Metadata of the caller. */
  readonly requestHeader: Metadata;
  /** Metadata before the answer. Fill it before the first message. */
  readonly responseHeader: Metadata;
  /** Metadata after the answer. */
  readonly responseTrailer: Metadata;
  /** Aborted when the answer is no longer needed: the server cancelled the call, it timed out, or the connection was lost. */
  readonly signal: AbortSignal;
}

/** A service as an object with a function for each method. */
export type ServiceImpl<S extends DescService> = {
  [Name in keyof S["method"]]: MethodImpl<S["method"][Name]>;
};

/** A method as a function. Streams in both directions are async iterables. */
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

/** A service offered to the server. Created by {@link implement}. */
export interface OfferedService {
  readonly methods: readonly OfferedMethod[];
}

/** A method of an offered service. */
export interface OfferedMethod {
  readonly method: DescMethod;
  readonly handler: (input: any, context: HandlerContext) => unknown;
}

/**
 * Implements a service that the server can call over the connection of a channel. Omitted methods are not offered.
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
