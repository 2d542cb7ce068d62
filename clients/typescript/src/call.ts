import type { DescMethod, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { type Codec, decodeTheirs, encodeOwn } from "./codec.js";
import { Code, RpcError } from "./error.js";
import type { Limit } from "./limit.js";
import { Metadata, type MetadataInit } from "./metadata.js";
import { Reader } from "./wire/bytes.js";
import type { Connection } from "./wire/connection.js";
import { checkMetadata, decodeHead, encodeEnd, encodeMessages, encodeOpen, encodeRequest, failureOf, Kind } from "./wire/envelope.js";
import { kindOf } from "./wire/hello.js";
import { readMessages, sendMessages } from "./wire/messages.js";

/** Options of one call. */
export interface CallOptions {
  /** Metadata for the server. */
  headers?: MetadataInit;
  /** The timeout of the whole call. It is sent to the server, which also drops the call when the timeout expires. */
  timeoutMs?: number;
  /** Aborts the call, on the server as well. */
  signal?: AbortSignal;
  /** Called with the metadata before the answer, if there is any. */
  onHeader?(headers: Metadata): void;
  /** Called with the metadata after the answer, if there is any. */
  onTrailer?(trailers: Metadata): void;
}

/** Returns the path of a method as in generated code: `package.Service/Method`. */
export function pathOf(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}

/** Makes a unary call on a connection. */
export async function callUnary<M extends DescMethod>(
  connection: Connection,
  method: M,
  codec: Codec,
  input: MessageInitShape<M["input"]>,
  options: CallOptions,
  limit: Limit,
): Promise<MessageShape<M["output"]>> {
  const { operation } = connection.method(pathOf(method), kindOf(method.methodKind));
  const metadata = metadataFor(connection, options);
  // The server knows the default timeout of this side, so only an explicit timeout is sent.
  const timeoutMs = options.timeoutMs === undefined ? undefined : limit.leftMs;
  const request = encodeRequest({ operation, format: codec.format, timeoutMs, metadata }, encodeOwn(codec, method.input, input));
  const body = new Reader(await connection.request(request, limit));
  const kind = body.u8();
  const head = decodeHead(body, connection.settings.metadataLenMax);
  if (kind === Kind.Failure) {
    throw failureOf(head);
  }
  tell(options.onHeader, head.metadata);
  tell(options.onTrailer, head.trailers);
  return decodeTheirs<M["output"]>(codec, method.output, body.rest(), Code.Internal);
}

/** Makes a call with a stream in at least one direction. `answerMs` limits the wait for the answer to a stream of requests. */
export async function* callStreaming<M extends DescMethod>(
  connection: Connection,
  method: M,
  codec: Codec,
  input: MessageInitShape<M["input"]> | AsyncIterable<MessageInitShape<M["input"]>>,
  options: CallOptions,
  limit: Limit,
  answerMs: number | undefined,
): AsyncGenerator<MessageShape<M["output"]>, void> {
  const { operation } = connection.method(pathOf(method), kindOf(method.methodKind));
  const metadata = metadataFor(connection, options);
  const timeoutMs = options.timeoutMs === undefined ? undefined : limit.leftMs;
  const isOne = method.methodKind === "server_streaming";
  // Encodes the request before anything is sent, so that a message that cannot be encoded starts no call.
  const request = isOne ? encodeOwn(codec, method.input, input as MessageInitShape<M["input"]>) : undefined;
  const stream = connection.openStream(encodeOpen({ operation, format: codec.format, timeoutMs, metadata }));
  limit.guard((failure) => stream.abort(failure));
  const requests = isOne ? undefined : (input as AsyncIterable<MessageInitShape<M["input"]>>)[Symbol.asyncIterator]();
  const sending = async () => {
    if (requests === undefined) {
      await stream.send(encodeMessages([request as Uint8Array]));
      return;
    }
    const messages = { [Symbol.asyncIterator]: () => requests };
    if (await sendMessages(stream, encodeAll(codec, method, messages))) {
      await stream.send(encodeEnd(new Metadata()));
      if (method.methodKind === "client_streaming" && options.timeoutMs === undefined) {
        limit.bound(answerMs);
      }
    }
  };
  sending().catch((failure: unknown) => stream.abort(RpcError.from(failure)));
  try {
    const around = {
      head: (headers: Metadata) => tell(options.onHeader, headers),
      end: (trailers: Metadata) => tell(options.onTrailer, trailers),
    };
    let isAnswered = false;
    for await (const message of readMessages(stream, connection.settings.metadataLenMax, around)) {
      if (method.methodKind === "client_streaming") {
        if (isAnswered) {
          throw new RpcError(Code.Internal, "the peer answered more than once");
        }
        isAnswered = true;
        // Only the end of the stream is missing, and it follows immediately.
        if (options.timeoutMs === undefined) {
          limit.bound(answerMs);
        }
      }
      yield decodeTheirs<M["output"]>(codec, method.output, message, Code.Internal);
    }
  } finally {
    stream.close();
    // Stops the requests of the caller. Does not wait for a request in preparation.
    void Promise.resolve(requests?.return?.()).catch(() => {});
  }
}

async function* encodeAll<M extends DescMethod>(
  codec: Codec,
  method: M,
  messages: AsyncIterable<MessageInitShape<M["input"]>>,
): AsyncGenerator<Uint8Array> {
  for await (const message of messages) {
    yield encodeOwn(codec, method.input, message);
  }
}

function metadataFor(connection: Connection, options: CallOptions): Metadata | undefined {
  if (options.headers === undefined) {
    return undefined;
  }
  const metadata = new Metadata(options.headers);
  checkMetadata(metadata, connection.part.metadataLenMax);
  return metadata;
}

function tell(whom: ((metadata: Metadata) => void) | undefined, metadata: Metadata): void {
  if (metadata.size > 0) {
    whom?.(metadata);
  }
}
