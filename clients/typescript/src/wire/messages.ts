import { Code, RpcError } from "../error.js";
import type { Metadata } from "../metadata.js";
import { ProtocolError, Reader } from "./bytes.js";
import { decodeHead, decodeMessages, encodeMessages, failureOf, Kind } from "./envelope.js";
import type { Stream } from "./stream.js";

/** Receives the parts of a stream other than messages. */
export interface Around {
  head?(metadata: Metadata): void;
  end?(trailers: Metadata): void;
}

/**
 * Reads the messages of one direction of a call until its END.
 *
 * Throws the failure sent by the peer, or an error if the stream ends without an END.
 */
export async function* readMessages(stream: Stream, metadataMax: number, around: Around = {}): AsyncGenerator<Uint8Array, void> {
  for (;;) {
    const data = await stream.read();
    if (data === undefined) {
      throw new RpcError(Code.Canceled, "the peer ended the call before it was through");
    }
    const body = new Reader(data);
    try {
      switch (body.u8()) {
        case Kind.Messages:
          yield* decodeMessages(body);
          break;
        case Kind.Head:
          around.head?.(decodeHead(body, metadataMax).metadata);
          break;
        case Kind.End:
          around.end?.(decodeHead(body, metadataMax).trailers);
          return;
        case Kind.Failure:
          throw failureOf(decodeHead(body, metadataMax));
        case Kind.Compressed:
          throw new RpcError(Code.Unimplemented, "the peer sent compressed messages, which this side did not offer to inflate");
      }
    } catch (error) {
      throw error instanceof ProtocolError ? new RpcError(Code.Internal, `the peer sent ${error.message}`) : error;
    }
  }
}

/** Sends messages with backpressure. Returns `false` if the peer ended the stream first. */
export async function sendMessages(stream: Stream, messages: AsyncIterable<Uint8Array>): Promise<boolean> {
  for await (const message of messages) {
    if (!(await stream.send(encodeMessages([message])))) {
      return false;
    }
  }
  return true;
}
