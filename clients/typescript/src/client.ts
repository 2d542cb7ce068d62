import type {
  DescMessage,
  DescMethod,
  DescMethodBiDiStreaming,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { CallOptions } from "./call.js";
import type { Channel } from "./channel.js";

/** The methods of a service as functions. */
export type Client<S extends DescService> = {
  readonly [Name in keyof S["method"]]: ClientMethod<S["method"][Name]>;
};

/** A method as a function. Streams in both directions are async iterables. */
export type ClientMethod<M> =
  M extends DescMethodUnary<infer I, infer O> ? UnaryMethod<I, O>
  : M extends DescMethodServerStreaming<infer I, infer O> ? ServerStreamingMethod<I, O>
  : M extends DescMethodClientStreaming<infer I, infer O> ? ClientStreamingMethod<I, O>
  : M extends DescMethodBiDiStreaming<infer I, infer O> ? BiDiStreamingMethod<I, O>
  : never;

/** One request, one answer. */
export type UnaryMethod<I extends DescMessage, O extends DescMessage> = (
  request: MessageInitShape<I>,
  options?: CallOptions,
) => Promise<MessageShape<O>>;

/** One request, a stream of answers. Iterating the answers starts the call, and leaving the loop ends it. */
export type ServerStreamingMethod<I extends DescMessage, O extends DescMessage> = (
  request: MessageInitShape<I>,
  options?: CallOptions,
) => AsyncIterable<MessageShape<O>>;

/** A stream of requests, one answer. */
export type ClientStreamingMethod<I extends DescMessage, O extends DescMessage> = (
  requests: AsyncIterable<MessageInitShape<I>>,
  options?: CallOptions,
) => Promise<MessageShape<O>>;

/** Concurrent streams in both directions. */
export type BiDiStreamingMethod<I extends DescMessage, O extends DescMessage> = (
  requests: AsyncIterable<MessageInitShape<I>>,
  options?: CallOptions,
) => AsyncIterable<MessageShape<O>>;

/**
 * Returns a client: an object with a function for each method of a service.
 *
 * ```ts
 * const greeter = createClient(Greeter, channel);
 * const { message } = await greeter.sayHello({ name: "Ann" });
 * ```
 */
export function createClient<S extends DescService>(service: S, channel: Channel): Client<S> {
  const methods: Record<string, unknown> = {};
  for (const method of service.methods) {
    methods[method.localName] = methodOf(method, channel);
  }
  return methods as Client<S>;
}

function methodOf(method: DescMethod, channel: Channel): unknown {
  switch (method.methodKind) {
    case "unary":
      return (request: MessageInitShape<DescMessage>, options?: CallOptions) => channel.unary(method, request, options);
    case "client_streaming":
      return (requests: AsyncIterable<MessageInitShape<DescMessage>>, options?: CallOptions) =>
        channel.clientStreaming(method, requests, options);
    default:
      return (input: MessageInitShape<DescMessage>, options?: CallOptions) => channel.streaming(method, input, options);
  }
}
