import { create, toBinary } from "@bufbuild/protobuf";
import type { DescFile, DescMethod, MessageInitShape } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { pathOf } from "./call.js";
import { type Codec, codecOf, decodeTheirs } from "./codec.js";
import { Code, RpcError } from "./error.js";
import { Limit } from "./limit.js";
import { Metadata } from "./metadata.js";
import type { HandlerContext, OfferedMethod, OfferedService } from "./service.js";
import { Reader, utf8, Writer } from "./wire/bytes.js";
import type { Connection } from "./wire/connection.js";
import { type Call, checkMetadata, decodeCall, encodeAnswer, encodeEnd, encodeFailure, encodeHead, Kind } from "./wire/envelope.js";
import { Operation } from "./wire/frames.js";
import { kindOf, type ServedMethod } from "./wire/hello.js";
import { readMessages, sendMessages } from "./wire/messages.js";
import type { Stream } from "./wire/stream.js";

/** The methods offered to the server, by their operations in our HELLO. */
export class Offer {
  readonly methods: readonly ServedMethod[];
  readonly #byOperation = new Map<number, OfferedMethod>();

  constructor(services: readonly OfferedService[]) {
    const offered = services.flatMap((service) => service.methods);
    this.methods = offered.map(({ method }, index) => ({
      path: pathOf(method),
      operation: Operation.FirstOfApplication + index,
      kind: kindOf(method.methodKind),
    }));
    offered.forEach((method, index) => this.#byOperation.set(Operation.FirstOfApplication + index, method));
  }

  method(operation: number): OfferedMethod {
    const method = this.#byOperation.get(operation);
    if (method === undefined) {
      throw new RpcError(Code.Unimplemented, `this side serves no method with the operation ${operation}`);
    }
    return method;
  }
}

/** Calls by the server on one connection. */
export class PeerCalls {
  readonly #connection: Connection;
  readonly #offer: Offer;
  readonly #running = new Map<number, AbortController>();

  constructor(connection: Connection, offer: Offer) {
    this.#connection = connection;
    this.#offer = offer;
  }

  /** `true` while a unary call is in progress. The connection tracks streams itself. */
  get isServing(): boolean {
    return this.#running.size > 0;
  }

  /** Answers a REQUEST or DESCRIBE. */
  packet(id: number, content: Uint8Array): void {
    if (this.#running.has(id)) {
      // The server reused an id in flight. Only the first packet is answered.
      return;
    }
    if (this.#running.size >= this.#connection.settings.callsMax) {
      this.#answer(id, encodeFailure(new RpcError(Code.ResourceExhausted, "too many calls are under way (callsMax)")));
      return;
    }
    const abort = new AbortController();
    this.#running.set(id, abort);
    const body = new Reader(content);
    const answering = body.u8() === Kind.Describe ? this.#describe(body) : this.#unary(body, abort);
    void answering.catch((failure: unknown) => encodeFailure(RpcError.from(failure))).then((answer) => {
      // A cancelled call has been answered with CANCELLED already.
      if (this.#running.get(id) === abort) {
        this.#running.delete(id);
        this.#answer(id, answer);
        this.#connection.closeIfLeft();
      }
    });
  }

  cancel(id: number): boolean {
    const abort = this.#running.get(id);
    this.#running.delete(id);
    abort?.abort(new RpcError(Code.Canceled, "the server gave the call up"));
    return abort !== undefined;
  }

  /** Answers a call on a stream opened by the server. */
  async stream(stream: Stream): Promise<void> {
    const abort = new AbortController();
    const limit = new Limit(undefined);
    limit.guard((failure) => abort.abort(failure));
    stream.onEnd = () => abort.abort(new RpcError(Code.Canceled, "the server ended the call"));
    try {
      await this.#answerStream(stream, abort, limit);
    } catch (failure) {
      if (stream.isOpen) {
        await stream.send(encodeFailure(RpcError.from(failure)));
      }
    } finally {
      stream.onEnd = undefined;
      limit.release();
      stream.close();
    }
  }

  /** Aborts all calls after the connection is lost. */
  end(why: RpcError): void {
    const running = [...this.#running.values()];
    this.#running.clear();
    for (const abort of running) {
      abort.abort(why);
    }
  }

  #answer(id: number, content: Uint8Array): void {
    const max = this.#connection.contentLenMax;
    this.#connection.answerPacket(id, content.length <= max ? content : encodeFailure(tooLarge(content.length, max)));
  }

  async #unary(body: Reader, abort: AbortController): Promise<Uint8Array> {
    const call = decodeCall(body, this.#connection.settings.metadataLenMax);
    const { method, handler } = this.#offer.method(call.operation);
    if (method.methodKind !== "unary") {
      throw new RpcError(Code.Unimplemented, `${pathOf(method)} takes a stream, not a packet`);
    }
    const codec = codecOf(call.format);
    const request = decodeTheirs(codec, method.input, body.rest(), Code.InvalidArgument);
    const context = contextOf(call, abort.signal);
    const limit = new Limit(undefined).bound(call.timeoutMs);
    try {
      const response = await new Promise((resolve, reject) => {
        limit.guard((failure) => {
          abort.abort(failure);
          reject(failure);
        });
        Promise.resolve(handler(request, context)).then(resolve, reject);
      });
      this.#checkMetadata(context.responseHeader);
      this.#checkMetadata(context.responseTrailer);
      return encodeAnswer(context.responseHeader, context.responseTrailer, encodeAnswerOf(codec, method, response));
    } finally {
      limit.release();
    }
  }

  async #answerStream(stream: Stream, abort: AbortController, limit: Limit): Promise<void> {
    const body = new Reader((await stream.read()) ?? new Uint8Array(1));
    if (body.u8() !== Kind.Open) {
      throw new RpcError(Code.Unimplemented, "this side takes calls on streams, and nothing else");
    }
    const metadataMax = this.#connection.settings.metadataLenMax;
    const call = decodeCall(body, metadataMax);
    const { method, handler } = this.#offer.method(call.operation);
    if (method.methodKind === "unary") {
      throw new RpcError(Code.Unimplemented, `${pathOf(method)} takes a packet, not a stream`);
    }
    const codec = codecOf(call.format);
    limit.bound(call.timeoutMs);
    const context = contextOf(call, abort.signal);
    const requests = decodeAll(codec, method, readMessages(stream, metadataMax));
    const input = method.methodKind === "server_streaming" ? (await requests.next()).value : requests;
    const output = handler(input, context);
    const responses = method.methodKind === "client_streaming" ? one(output as Promise<unknown>) : (output as AsyncIterable<unknown>);
    const encoded = this.#encodeAll(codec, method, responses, stream, context);
    const passed = new Promise<never>((_, reject) => {
      limit.guard((failure) => {
        abort.abort(failure);
        reject(failure);
      });
    });
    const sent = await Promise.race([sendMessages(stream, encoded), passed]);
    if (sent) {
      this.#checkMetadata(context.responseTrailer);
      await stream.send(encodeEnd(context.responseTrailer));
    }
  }

  async *#encodeAll(codec: Codec, method: DescMethod, responses: AsyncIterable<unknown>, stream: Stream, context: HandlerContext) {
    let isFirst = true;
    for await (const response of responses) {
      if (isFirst) {
        await this.#sendHead(stream, context);
        isFirst = false;
      }
      yield encodeAnswerOf(codec, method, response);
    }
    if (isFirst) {
      await this.#sendHead(stream, context);
    }
  }

  async #sendHead(stream: Stream, { responseHeader }: HandlerContext): Promise<void> {
    this.#checkMetadata(responseHeader);
    if (responseHeader.size > 0) {
      await stream.send(encodeHead(responseHeader));
    }
  }

  #checkMetadata(metadata: Metadata): void {
    checkMetadata(metadata, this.#connection.part.metadataLenMax);
  }

  /** Describes the messages of a method, so that the server can check whether its own are compatible. */
  async #describe(body: Reader): Promise<Uint8Array> {
    body.take(body.u32());
    const { method } = this.#offer.method(body.u16());
    const files = new Map<string, DescFile>();
    addFile(files, method.input.file);
    addFile(files, method.output.file);
    const description = new Writer(1024)
      .field(Describes.Request, utf8(method.input.typeName))
      .field(Describes.Response, utf8(method.output.typeName))
      .field(Describes.Descriptors, toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, {
        file: [...files.values()].map((file) => file.proto),
      })))
      .finish();
    if (description.length > DESCRIPTION_LEN_MAX) {
      throw new RpcError(Code.ResourceExhausted, "the description of the method would be too long");
    }
    return encodeAnswer(new Metadata(), new Metadata(), description);
  }
}

const Describes = { Request: 1, Response: 2, Descriptors: 3 } as const;
const DESCRIPTION_LEN_MAX = 65_536;

function addFile(files: Map<string, DescFile>, file: DescFile): void {
  if (!files.has(file.name)) {
    for (const dependency of file.dependencies) {
      addFile(files, dependency);
    }
    files.set(file.name, file);
  }
}

function contextOf(call: Call, signal: AbortSignal): HandlerContext {
  return {
    requestHeader: call.metadata ?? new Metadata(),
    responseHeader: new Metadata(),
    responseTrailer: new Metadata(),
    signal,
  };
}

function encodeAnswerOf(codec: Codec, method: DescMethod, response: unknown): Uint8Array {
  try {
    return codec.encode(method.output, response as MessageInitShape<typeof method.output>);
  } catch (error) {
    throw new RpcError(Code.Internal, `the answer of ${pathOf(method)} cannot be encoded: ${(error as Error).message}`);
  }
}

async function* decodeAll(codec: Codec, method: DescMethod, messages: AsyncIterable<Uint8Array>) {
  for await (const message of messages) {
    yield decodeTheirs(codec, method.input, message, Code.InvalidArgument);
  }
}

async function* one(response: Promise<unknown>) {
  yield await response;
}

function tooLarge(len: number, max: number): RpcError {
  return new RpcError(Code.ResourceExhausted, `the answer makes ${len} bytes, of which the caller takes ${max}`);
}
