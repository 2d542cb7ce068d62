// Calls grpc.testing.TestService with @grpc/grpc-js: grpc.mjs PORT DESCRIPTORS.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [port, descriptors] = process.argv.slice(2);
const loaded = grpc.loadPackageDefinition(loader.loadFileDescriptorSetFromBuffer(readFileSync(descriptors), { defaults: true }));
const client = new loaded.grpc.testing.TestService(`127.0.0.1:${port}`, grpc.credentials.createInsecure(), {
  "grpc.default_compression_algorithm": 2,
});

// Makes a call of one answer, and returns that, or its error.
const call = (method, ...args) =>
  new Promise((resolve) => client[method](...args, (error, answer) => resolve(error ?? answer)));

// Returns the lengths of a stream of answers, or its error.
const lengths = (stream) =>
  new Promise((resolve) => {
    const lengths = [];
    stream.on("data", (answer) => lengths.push(answer.payload.body.length));
    stream.on("error", resolve);
    stream.on("end", () => resolve(lengths));
  });

assert.deepEqual(await call("emptyCall", {}), {});
const answer = await call("unaryCall", { response_size: 100_000, payload: { body: Buffer.alloc(100_000) } });
assert.equal(answer.payload.body.length, 100_000);

const metadata = new grpc.Metadata();
metadata.set("x-grpc-test-echo-initial", "one");
metadata.set("x-grpc-test-echo-trailing-bin", Buffer.from([1, 2, 3]));
await new Promise((resolve) => {
  const seen = [];
  const made = client.unaryCall({}, metadata, (error) => assert.equal(error, null));
  made.on("metadata", (head) => seen.push(head.get("x-grpc-test-echo-initial")));
  made.on("status", (status) => {
    seen.push(status.metadata.get("x-grpc-test-echo-trailing-bin"));
    assert.deepEqual(seen, [["one"], [Buffer.from([1, 2, 3])]]);
    resolve();
  });
});

const response_status = { code: grpc.status.NOT_FOUND, message: "nobody ☺ here\n" };
for (const error of [
  await call("unaryCall", { response_status }),
  await lengths(client.fullDuplexCall().on("error", () => {}).end({ response_status })),
]) {
  assert.deepEqual([error.code, error.details], [response_status.code, response_status.message]);
}
const late = { response_parameters: [{ interval_us: 5_000_000 }] };
const error = await lengths(client.streamingOutputCall(late, { deadline: Date.now() + 50 }));
assert.equal(error.code, grpc.status.DEADLINE_EXCEEDED);
assert.equal((await call("unimplementedCall", {})).code, grpc.status.UNIMPLEMENTED);

const sizes = [{ size: 1 }, { size: 0 }, { size: 70_000 }];
assert.deepEqual(await lengths(client.streamingOutputCall({ response_parameters: sizes })), [1, 0, 70_000]);
const sum = await new Promise((resolve) => {
  const made = client.streamingInputCall((error, answer) => resolve(error ?? answer));
  for (const length of [1, 0, 40_000]) made.write({ payload: { body: Buffer.alloc(length) } });
  made.end();
});
assert.equal(sum.aggregated_payload_size, 40_001);

// Each request is sent when the answer to the one before is here.
const duplex = client.fullDuplexCall();
const answered = lengths(duplex);
let size = 1;
const next = () => (size > 3 ? duplex.end() : duplex.write({ response_parameters: [{ size: size++ }] }));
duplex.on("data", next);
next();
assert.deepEqual(await answered, [1, 2, 3]);
console.log("all went well");
client.close();
