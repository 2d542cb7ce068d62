// Calls grpc.testing.TestService with @connectrpc: connect.mjs PORT DESCRIPTORS TRANSPORT.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import * as node from "@connectrpc/connect-node";
import * as web from "@connectrpc/connect-web";

const [port, descriptors, name] = process.argv.slice(2);
const baseUrl = `http://127.0.0.1:${port}`;
const transport = {
  "connect-1.1": () => node.createConnectTransport({ baseUrl, httpVersion: "1.1", sendCompression: node.compressionGzip, compressMinBytes: 0 }),
  "connect-2": () => node.createConnectTransport({ baseUrl, httpVersion: "2", useHttpGet: true }),
  "connect-2-binary": () => node.createConnectTransport({ baseUrl, httpVersion: "2", useBinaryFormat: true }),
  "grpc-2": () => node.createGrpcTransport({ baseUrl, sendCompression: node.compressionGzip, compressMinBytes: 0 }),
  "grpc-web-1.1": () => node.createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }),
  "grpc-web-2": () => node.createGrpcWebTransport({ baseUrl, httpVersion: "2" }),
  "web-connect": () => web.createConnectTransport({ baseUrl }),
  "web-grpc-web": () => web.createGrpcWebTransport({ baseUrl }),
}[name]();
// Fetch and HTTP/1.1 carry no more than this: requests end before answers begin, and fetch sends no streams.
const hasDuplex = name.includes("-2");
const hasRequestStreams = !name.startsWith("web");

const files = createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(descriptors)));
const client = createClient(files.getService("grpc.testing.TestService"), transport);

async function* each(...messages) {
  yield* messages;
}

async function lengths(answers) {
  const lengths = [];
  for await (const answer of answers) lengths.push(answer.payload.body.length);
  return lengths;
}

await client.emptyCall({});
const answer = await client.unaryCall({ responseSize: 100_000, payload: { body: new Uint8Array(100_000) } });
assert.equal(answer.payload.body.length, 100_000);
assert.equal((await client.cacheableUnaryCall({ responseSize: 3 })).payload.body.length, 3);

const seen = {};
await client.unaryCall({}, {
  headers: { "x-grpc-test-echo-initial": "one", "x-grpc-test-echo-trailing-bin": "q6ur" },
  onHeader: (headers) => (seen.head = headers.get("x-grpc-test-echo-initial")),
  onTrailer: (trailers) => (seen.trailer = trailers.get("x-grpc-test-echo-trailing-bin")),
});
assert.deepEqual(seen, { head: "one", trailer: "q6ur" });

const responseStatus = { code: Code.NotFound, message: "nobody ☺ here\n" };
for (const failing of [
  () => client.unaryCall({ responseStatus }),
  () => lengths(client.streamingOutputCall({ responseStatus, responseParameters: [{ size: 1 }] })),
]) {
  const error = await failing().then(() => assert.fail("it answered"), ConnectError.from);
  assert.deepEqual([error.code, error.rawMessage], [Code.NotFound, responseStatus.message]);
}
const late = await lengths(client.streamingOutputCall({ responseParameters: [{ intervalUs: 5_000_000 }] }, { timeoutMs: 50 }))
  .then(() => assert.fail("it answered"), ConnectError.from);
assert.equal(late.code, Code.DeadlineExceeded);
const none = await client.unimplementedCall({}).then(() => assert.fail("it answered"), ConnectError.from);
assert.equal(none.code, Code.Unimplemented);

const sizes = [{ size: 1 }, { size: 0 }, { size: 70_000 }];
assert.deepEqual(await lengths(client.streamingOutputCall({ responseParameters: sizes })), [1, 0, 70_000]);
if (hasRequestStreams) {
  const body = (length) => ({ payload: { body: new Uint8Array(length) } });
  assert.equal((await client.streamingInputCall(each(body(1), body(0), body(40_000)))).aggregatedPayloadSize, 40_001);
  const requests = each({ responseParameters: [{ size: 1 }] }, { responseParameters: [{ size: 2 }, { size: 3 }] });
  assert.deepEqual(await lengths(client.halfDuplexCall(requests)), [1, 2, 3]);
}
if (hasDuplex) {
  // Each request is sent when the answer to the one before is here.
  let answered = () => {};
  const requests = (async function* () {
    for (const size of [1, 2, 3]) {
      const next = new Promise((resolve) => (answered = resolve));
      yield { responseParameters: [{ size }] };
      await next;
    }
  })();
  const sizes = [];
  for await (const answer of client.fullDuplexCall(requests)) {
    sizes.push(answer.payload.body.length);
    answered();
  }
  assert.deepEqual(sizes, [1, 2, 3]);
}
console.log("all went well");
process.exit();
