import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, type HandlerContext, implement, RpcError, type ServiceImpl } from "../src/index.js";
import { Reader } from "../src/wire/bytes.js";
import { decodeControl } from "../src/wire/control.js";
import { decodePart } from "../src/wire/hello.js";
import { Test } from "./gen/test_pb.js";
import { conversation, frame, fromHex, hex, Scripted, type ScriptedSocket, serverHello, toHex } from "./support.js";

/** Does what the service of the vectors does. */
const handlers: ServiceImpl<typeof Test> = {
  async say({ text }, context) {
    if (text === "wait") {
      await aborted(context);
    }
    context.responseHeader.append("served-by", "test");
    return { text };
  },
  async *count({ text }, context) {
    context.responseTrailer.append("cost-bin", fromHex("00ff"));
    for (const word of text.split(" ")) {
      if (word === "fail") {
        throw new RpcError(Code.NotFound, "no such word");
      }
      if (word === "wait") {
        await aborted(context);
      }
      yield { text: word };
    }
  },
  async gather(requests) {
    const all: string[] = [];
    for await (const { text } of requests) {
      all.push(text);
    }
    return { text: all.join(" ") };
  },
  async *chat(requests) {
    for await (const { text } of requests) {
      yield { text: `re: ${text}` };
    }
  },
};

let lastReason: unknown;

function aborted({ signal }: HandlerContext): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => {
      lastReason = signal.reason;
      reject(signal.reason as Error);
    });
  });
}

async function serving(options: ConstructorParameters<typeof Scripted>[0] = {}) {
  const scripted = new Scripted({ services: [implement(Test, handlers)], ...options });
  const connecting = scripted.channel.connect();
  const socket = await scripted.connected();
  await connecting;
  return { channel: scripted.channel, socket };
}

/** A message of Words. */
function words(text: string): string {
  return `0a${Buffer.from([text.length]).toString("hex")}${hex(text)}`;
}

function messages(...texts: string[]): string {
  return `11${texts.map((text) => (text.length + 2).toString(16).padStart(8, "0") + words(text)).join("")}`;
}

/** The first stream of a server. */
const STREAM = 0x8000;

async function said(socket: ScriptedSocket, count: number): Promise<string[]> {
  const all: string[] = [];
  for (let n = 0; n < count; n++) {
    all.push(await socket.frame());
  }
  return all;
}

test("the HELLO has the methods that are implemented, and they agree with no fingerprint", async () => {
  const scripted = new Scripted({ services: [implement(Test, { say: handlers.say, chat: handlers.chat })] });
  const connecting = scripted.channel.connect();
  const socket = await scripted.socket();
  socket.onopen?.({});
  const sent = await socket.frame();
  const control = decodeControl(fromHex(sent.slice(20)));
  assert(control?.kind === "hello");
  assert.deepEqual(decodePart(control.hello.parts.get("frpc")!).methods, [
    { path: "calls.Test/Say", operation: 10, kind: 0 },
    { path: "calls.Test/Chat", operation: 11, kind: 3 },
  ]);
  assert.match(sent, /000a00f{64}63616c6c73/);
  socket.deliver(serverHello);
  await connecting;
  scripted.channel.close();
});

test("a unary call of the server is answered, with metadata", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(5, 4, `01000a0100000000${words("hi")}`));
  const head = `0200000010${"0009"}${hex("served-by")}${hex("test")}`.replace("0200000010", "020000000f");
  assert.equal(await socket.frame(), frame(5, 4, `0200000014${head}${words("hi")}`));
  channel.close();
});

test("a call of the server in JSON is answered in JSON", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(5, 4, `01000a0200000000${hex('{"text":"hi","new":1}')}`));
  assert((await socket.frame()).endsWith(hex('{"text":"hi"}')));
  channel.close();
});

test("streams of the server are answered as the vectors have it", async () => {
  const { channel, socket } = await serving();
  const [, , ...open] = conversation("stream_in_protocol_buffers").flatMap(({ from, frames }) => (from === "client" ? frames : []));
  // Streams of a server have ids of their own.
  socket.deliver(...open.map(({ hex }) => hex.replace("000f0001", "000f8000")));
  assert.deepEqual(await said(socket, 4), [
    frame(STREAM, 2, messages("a")),
    frame(STREAM, 2, messages("b")),
    frame(STREAM, 2, `1300000011030000000c0008${hex("cost-bin")}00ff`),
    frame(STREAM, 2, ""),
  ]);
  channel.close();
});

test("a stream of requests and a stream each way are answered", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(STREAM, 2, "10000c0100000000"), frame(STREAM, 2, messages("a", "b")), frame(STREAM, 2, "1300000000"));
  assert.deepEqual(await said(socket, 3), [
    frame(STREAM, 2, messages("a b")),
    frame(STREAM, 2, "1300000000"),
    frame(STREAM, 2, ""),
  ]);
  socket.deliver(frame(STREAM + 1, 2, "10000d0100000000"), frame(STREAM + 1, 2, messages("a")));
  assert.equal(await socket.frame(), frame(STREAM + 1, 2, messages("re: a")));
  socket.deliver(frame(STREAM + 1, 2, "1300000000"));
  assert.deepEqual(await said(socket, 2), [frame(STREAM + 1, 2, "1300000000"), frame(STREAM + 1, 2, "")]);
  channel.close();
});

test("a handler that fails on a stream ends it with a failure", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(STREAM, 2, "10000b0100000000"), frame(STREAM, 2, messages("a fail")));
  assert.deepEqual(await said(socket, 3), [
    frame(STREAM, 2, messages("a")),
    frame(STREAM, 2, `0300000017${"0400000001"}05${"050000000c"}${hex("no such word")}`),
    frame(STREAM, 2, ""),
  ]);
  channel.close();
});

test("a call that the server gives up is aborted and not answered", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(5, 4, `01000a0100000000${words("wait")}`), frame(5, 3, "040004"));
  assert.equal(await socket.frame(), frame(5, 3, "050004"));
  assert.equal((lastReason as RpcError).code, Code.Canceled);
  // Of a call that is not there.
  socket.deliver(frame(5, 3, "040004"));
  socket.deliver(frame(5, 4, `01000a0100000000${words("hi")}`));
  assert.match(await socket.frame(), /^000f0005000400/);
  channel.close();
});

test("a stream that the server closes aborts its handler", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(STREAM, 2, "10000b0100000000"), frame(STREAM, 2, messages("a wait")));
  await socket.frame();
  lastReason = undefined;
  socket.deliver(frame(STREAM, 2, ""));
  assert.equal((lastReason as unknown as RpcError).code, Code.Canceled);
  assert.equal(socket.rest, "");
  channel.close();
});

test("a call whose time is up fails with that", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(5, 4, `01000a010000000d010000000800000000000003e8${words("wait")}`));
  assert.match(await socket.frame(), /^000f00050004.{8}03.{8}040000000104/);
  assert.equal((lastReason as RpcError).code, Code.DeadlineExceeded);
  socket.deliver(frame(STREAM, 2, "10000b010000000d010000000800000000000003e8"), frame(STREAM, 2, messages("wait")));
  assert.match(await socket.frame(), /^000f80000002.{8}03.{8}040000000104/);
  channel.close();
});

const REFUSED: [what: string, content: string, code: number][] = [
  ["an operation that nobody serves", `0100630100000000${words("hi")}`, Code.Unimplemented],
  ["polyglot", "01000a0000000000080005", Code.Unimplemented],
  ["a message that cannot be read", "01000a0100000000ffff", Code.InvalidArgument],
  ["a head that is cut off", "01000a0100000009616263", Code.Internal],
  ["a method with streams in a packet", `01000b0100000000${words("hi")}`, Code.Unimplemented],
];
for (const [what, content, code] of REFUSED) {
  test(`a call with ${what} fails, and the connection goes on`, async () => {
    const { channel, socket } = await serving();
    socket.deliver(frame(5, 4, content));
    const failure = new Reader(fromHex((await socket.frame()).slice(20)));
    assert.equal(failure.u8(), 3);
    failure.u32();
    const [tag, value] = failure.fields().next().value!;
    assert.equal(tag, 4);
    assert.equal(value.u8(), code);
    assert(!socket.isClosed);
    channel.close();
  });
}

test("calls beyond the limit are refused", async () => {
  const { channel, socket } = await serving({ callsMax: 1, streamsMax: 1 });
  socket.deliver(frame(5, 4, `01000a0100000000${words("wait")}`), frame(6, 4, `01000a0100000000${words("hi")}`));
  assert.match(await socket.frame(), /^000f00060004.{8}03.{8}040000000108/);
  socket.deliver(frame(STREAM, 2, "10000d0100000000"), frame(STREAM + 1, 2, "10000d0100000000"));
  assert.equal(await socket.frame(), frame(STREAM + 1, 2, ""));
  channel.close();
});

test("a method is described by its messages", async () => {
  const { channel, socket } = await serving();
  socket.deliver(frame(1, 4, "0400000000000a"));
  const answer = new Reader(fromHex((await socket.frame()).slice(20)));
  assert.equal(answer.u8(), 2);
  answer.take(answer.u32());
  const fields = new Map([...answer.fields()].map(([tag, value]) => [tag, value.rest()]));
  assert.equal(toHex(fields.get(1)!), hex("calls.Words"));
  assert.equal(toHex(fields.get(2)!), hex("calls.Words"));
  const { file } = fromBinary(FileDescriptorSetSchema, fields.get(3)!);
  assert.deepEqual(file.flatMap(({ messageType }) => messageType.map(({ name }) => name)), ["Words"]);
  channel.close();
});

test("a handler learns that the connection is gone", async () => {
  const { socket, channel } = await serving();
  socket.deliver(frame(5, 4, `01000a0100000000${words("wait")}`));
  await Promise.resolve();
  lastReason = undefined;
  socket.onclose?.({ code: 1006, reason: "" });
  assert.equal((lastReason as unknown as RpcError).code, Code.Unavailable);
  channel.close();
});
