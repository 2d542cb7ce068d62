import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { toBinary } from "@bufbuild/protobuf";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { Code, createChannel, createClient, RpcError } from "../src/index.js";
import { Limit } from "../src/limit.js";
import { encodeHello } from "../src/wire/control.js";
import { encodePart } from "../src/wire/hello.js";
import { Pending } from "../src/wire/pending.js";
import { Test, WordsSchema } from "./gen/test_pb.js";
import {
  answer,
  frame,
  fromHex,
  hex,
  idOf,
  PING,
  PONG,
  Scripted,
  type ScriptedSocket,
  settled,
  toHex,
} from "./support.js";

/** Takes the frame of a unary call, and answers it. */
async function answerNext(socket: ScriptedSocket, text: string): Promise<void> {
  socket.deliver(answer(idOf(await socket.frame()), text));
}

function scripted(...args: ConstructorParameters<typeof Scripted>) {
  const made = new Scripted(...args);
  return { ...made, scripted: made, channel: made.channel, client: createClient(Test, made.channel) };
}

test("a call waits for the connection, and the next is made on it at once", async () => {
  const { scripted: server, client, channel } = scripted();
  assert.equal(channel.state, "idle");
  const call = client.say({ text: "hi" });
  assert.equal(channel.state, "connecting");
  const socket = await server.connected();
  assert.equal(channel.state, "ready");
  await answerNext(socket, "one");
  assert.equal((await call).text, "one");
  const next = client.say({ text: "hi" });
  await answerNext(socket, "two");
  assert.equal((await next).text, "two");
  channel.close();
  assert(socket.isClosed);
});

test("calls under way fail with their connection, and later ones find another", async () => {
  const { scripted: server, client, channel } = scripted();
  const call = client.say({ text: "hi" });
  const socket = await server.connected();
  await socket.frame();
  socket.onclose?.({ code: 1006, reason: "" });
  await assert.rejects(call, (error: RpcError) => error.code === Code.Unavailable && !error.notSent);
  const next = client.say({ text: "hi" });
  await answerNext(await server.connected(), "again");
  assert.equal((await next).text, "again");
  channel.close();
});

test("streams end with their connection", async () => {
  const { scripted: server, client, channel } = scripted();
  const first = client.count({ text: "hi" })[Symbol.asyncIterator]().next();
  const socket = await server.connected();
  await socket.frame();
  socket.onclose?.({ code: 1006, reason: "" });
  await assert.rejects(first, (error: RpcError) => error.code === Code.Unavailable && !error.notSent);
  channel.close();
});

test("attempts to connect go on until one succeeds", async () => {
  const states: string[] = [];
  const { scripted: server, client, channel } = scripted({ onState: (state) => states.push(state) });
  const call = client.say({ text: "hi" });
  for (let attempt = 0; attempt < 3; attempt++) {
    (await server.socket()).onclose?.({ code: 1006, reason: "" });
  }
  await answerNext(await server.connected(), "at last");
  assert.equal((await call).text, "at last");
  channel.close();
  assert.deepEqual(states, ["connecting", "ready", "closed"]);
});

test("a call whose time is up without a connection says why there was none", async () => {
  const { scripted: server, client, channel } = scripted({ backoff: { initialMs: 10_000, maxMs: 10_000 } });
  const call = client.say({ text: "hi" }, { timeoutMs: 50 });
  (await server.socket()).onclose?.({ code: 1006, reason: "nobody is home" });
  await assert.rejects(call, (error: RpcError) => {
    assert.equal(error.code, Code.DeadlineExceeded);
    assert(error.notSent);
    assert.match(error.message, /nobody is home/);
    return true;
  });
  channel.close();
});

test("a WebSocket that gives a reason has it as a cause, and one of a browser has advice", async () => {
  const page = globalThis as { location?: unknown };
  const inOrder: [location: unknown, event: object, expected: RegExp][] = [
    [undefined, { message: "refused", error: "ECONNREFUSED" }, /refused/],
    [{ origin: "http://elsewhere" }, {}, /allow pages of http:\/\/elsewhere/],
    [{ origin: "http://test" }, { message: "" }, /the WebSocket failed without a reason\)$/],
  ];
  const before = Object.getOwnPropertyDescriptor(page, "location");
  for (const [location, event, expected] of inOrder) {
    const { scripted: server, channel } = scripted({ backoff: { initialMs: 10_000, maxMs: 10_000 } });
    const connecting = channel.connect({ timeoutMs: 50 });
    const socket = await server.socket();
    Object.defineProperty(page, "location", { value: location, configurable: true });
    try {
      socket.onerror?.(event);
    } finally {
      Object.defineProperty(page, "location", before ?? { value: undefined, configurable: true });
    }
    await assert.rejects(connecting, (error: RpcError) => {
      assert.match(error.message, expected);
      assert.equal((error.cause as RpcError).cause, (event as { error?: unknown }).error);
      return true;
    });
    channel.close();
  }
});

test("calls fail once the channel is closed, those that wait too", async () => {
  const { client, channel } = scripted();
  const call = client.say({ text: "hi" });
  channel.close();
  await assert.rejects(call, { code: Code.Canceled });
  await assert.rejects(client.say({ text: "hi" }), { code: Code.Canceled });
  assert.equal(channel.state, "closed");
});

test("a server that goes away answers what is under way, and new calls go to another connection", async () => {
  const { scripted: server, client, channel } = scripted();
  const first = client.say({ text: "1" });
  const old = await server.connected();
  const id = idOf(await old.frame());
  old.deliver(frame(0, 3, `0301${hex("a new version")}`));
  const second = client.say({ text: "2" });
  const next = await server.connected();
  await answerNext(next, "new");
  assert.equal((await second).text, "new");
  assert(!old.isClosed);
  old.deliver(answer(id, "old"));
  assert.equal((await first).text, "old");
  await old.closed();
  assert.equal(channel.state, "ready");
  channel.close();
});

test("calls that wait for their turn go to another connection when the server goes away", async () => {
  const part = encodePart({ metadataLenMax: 0, callsMax: 1, methods: [{ path: "calls.Test/Say", operation: 10, kind: 0 }] });
  const hello = toHex(encodeHello({ features: 15, contentLenMax: 1000, parts: new Map([["frpc", part]]) }));
  const { scripted: server, client, channel } = scripted();
  const first = client.say({ text: "1" });
  const second = client.say({ text: "2" });
  const old = await server.connected(frame(0, 3, hello));
  const sent = await old.frame();
  old.deliver(frame(0, 3, "0301"));
  await answerNext(await server.connected(), "elsewhere");
  assert.equal((await second).text, "elsewhere");
  old.deliver(answer(idOf(sent), "here"));
  assert.equal((await first).text, "here");
  channel.close();
});

test("a call that was given up is cancelled, and its answer is not heard", async () => {
  const { scripted: server, client, channel } = scripted();
  const abort = new AbortController();
  const call = client.say({ text: "wait" }, { signal: abort.signal });
  const socket = await server.connected();
  const id = idOf(await socket.frame());
  abort.abort();
  await assert.rejects(call, { code: Code.Canceled });
  assert.equal(await socket.frame(), frame(id, 3, "040004"));
  socket.deliver(answer(id, "late"));
  const next = client.say({ text: "hi" });
  await answerNext(socket, "ok");
  assert.equal((await next).text, "ok");
  channel.close();
});

test("the id of a call that was given up is not used before the server has said which came first", async () => {
  const sent: number[] = [];
  const port = { isUsable: true, unusable: () => new RpcError(Code.Unavailable, ""), sendPacket: (id: number) => sent.push(id), sendCancel() {}, closeIfLeft() {} };
  const pending = new Pending(port);
  const limit = new Limit(undefined);
  const givenUp = pending.request(new Uint8Array(), new Limit(AbortSignal.abort()), undefined);
  await assert.rejects(givenUp, { code: Code.Canceled });
  // All ids go round once.
  for (let n = 1; n <= 0xffff; n++) {
    const call = pending.request(new Uint8Array(), limit, undefined);
    pending.answer(sent.at(-1)!, new Uint8Array());
    await call;
  }
  assert.deepEqual([sent[0], sent[1], sent[0xfffe], sent[0xffff]], [1, 2, 0xffff, 2]);
  pending.cancelled(1);
  assert.equal(pending.waiting, 0);
});

test("calls beyond what the server takes at once wait for their turn", async () => {
  const part = encodePart({ metadataLenMax: 0, callsMax: 1, methods: [{ path: "calls.Test/Say", operation: 10, kind: 0 }] });
  const hello = toHex(encodeHello({ features: 15, contentLenMax: 1000, parts: new Map([["frpc", part]]) }));
  const { scripted: server, client, channel } = scripted();
  const first = client.say({ text: "1" });
  const second = client.say({ text: "2" });
  const impatient = client.say({ text: "3" }, { timeoutMs: 100 });
  const socket = await server.connected(frame(0, 3, hello));
  const sent = await socket.frame();
  await assert.rejects(impatient, { code: Code.DeadlineExceeded });
  assert.equal(socket.rest, "");
  socket.deliver(answer(idOf(sent), "one"));
  assert.equal((await first).text, "one");
  await answerNext(socket, "two");
  assert.equal((await second).text, "two");
  channel.close();
});

test("messages and metadata that the server does not take are not sent", async () => {
  const part = encodePart({ metadataLenMax: 40, methods: [{ path: "calls.Test/Say", operation: 10, kind: 0 }] });
  const hello = toHex(encodeHello({ features: 15, contentLenMax: 100, parts: new Map([["frpc", part]]) }));
  const { scripted: server, client, channel } = scripted();
  const calls = Promise.allSettled([
    client.say({ text: "x".repeat(100) }),
    client.say({ text: "hi" }, { headers: { name: "value" } }),
  ]);
  const socket = await server.connected(frame(0, 3, hello));
  for (const { status, ...call } of await calls) {
    assert.equal(status, "rejected");
    const error = (call as PromiseRejectedResult).reason as RpcError;
    assert.equal(error.code, Code.ResourceExhausted);
    assert(error.notSent);
  }
  assert.equal(socket.rest, "");
  channel.close();
});

test("requests wait for credit, and go on when it comes", async () => {
  const { scripted: server, client, channel } = scripted();
  let made = 0;
  const requests = async function* () {
    for (;;) {
      made += 1;
      yield { text: "x".repeat(1000) };
    }
  };
  const call = client.gather(requests());
  const socket = await server.connected();
  const open = await socket.frame();
  // Its window is 5000, and each message costs 1072 or so. The last goes below zero.
  const messages: string[] = [];
  for (let n = 0; n < 5; n++) {
    messages.push(await socket.frame());
  }
  await settled();
  assert.equal(socket.rest, "");
  assert.equal(made, 6);
  socket.deliver(frame(idOf(open), 3, "0200001000"));
  await socket.frame();
  await socket.frame();
  socket.deliver(frame(idOf(open), 2, "11000000040a026f6b"), frame(idOf(open), 2, "1300000000"), frame(idOf(open), 2, ""));
  assert.equal((await call).text, "ok");
  channel.close();
});

test("a reader gives credit back as it reads", async () => {
  const { scripted: server, client, channel } = scripted({ window: 1000 });
  const answers = client.count({ text: "hi" })[Symbol.asyncIterator]();
  const first = answers.next();
  const socket = await server.connected();
  const id = idOf(await socket.frame());
  await socket.frame();
  const message = frame(id, 2, `11000001030a8002${"78".repeat(256)}`);
  socket.deliver(message, message, message);
  await first;
  assert.equal(socket.rest, "", "the reader is busy with the first");
  await answers.next();
  assert.equal(socket.rest, "", "less than half of the window is owed");
  await answers.next();
  const cost = 64 + 1 + 4 + 3 + 256;
  assert.equal(await socket.frame(), frame(id, 3, `02${(2 * cost).toString(16).padStart(8, "0")}`));
  await answers.return?.();
  assert.equal(await socket.frame(), frame(id, 2, ""), "leaving the loop ends the call");
  channel.close();
});

test("a server that sends far beyond its credit is cut off, and only on that stream", async () => {
  const { scripted: server, client, channel } = scripted({ window: 100, contentLenMax: 1000 });
  const answers = client.count({ text: "hi" })[Symbol.asyncIterator]();
  const first = answers.next();
  const socket = await server.connected();
  const id = idOf(await socket.frame());
  await socket.frame();
  socket.deliver(...Array<string>(20).fill(frame(id, 2, `11000000670a65${"78".repeat(101)}`)));
  assert.equal(await socket.frame(), frame(id, 2, ""));
  await assert.rejects(first, { code: Code.ResourceExhausted });
  const call = client.say({ text: "hi" });
  await answerNext(socket, "fine");
  assert.equal((await call).text, "fine");
  channel.close();
});

test("a call with streams ends with its time, here and there", async () => {
  const { scripted: server, client, channel } = scripted();
  const answers = client.count({ text: "hi" }, { timeoutMs: 100 })[Symbol.asyncIterator]();
  const first = answers.next();
  const socket = await server.connected();
  const open = await socket.frame();
  assert.match(open, /^.{20}10000b01000000.{2}0100000008/, "the server is told of the time");
  await socket.frame();
  await assert.rejects(first, { code: Code.DeadlineExceeded });
  assert.equal(await socket.frame(), frame(idOf(open), 2, ""));
  channel.close();
});

test("requests that fail end the call with their failure", async () => {
  const { scripted: server, client, channel } = scripted();
  const requests = async function* () {
    yield { text: "a" };
    throw new Error("no more of this");
  };
  const call = client.gather(requests());
  const socket = await server.connected();
  const id = idOf(await socket.frame());
  await socket.frame();
  assert.equal(await socket.frame(), frame(id, 2, ""));
  await assert.rejects(call, (error: RpcError) => error.code === Code.Unknown && (error.cause as Error).message === "no more of this");
  channel.close();
});

test("a request that cannot be encoded is its caller's mistake, and is not sent", async () => {
  const { scripted: server, client, channel } = scripted();
  const call = client.say({
    get text(): string {
      throw new Error("there is no text");
    },
  });
  const socket = await server.connected();
  await assert.rejects(call, (error: RpcError) => error.code === Code.InvalidArgument && error.notSent);
  assert.equal(socket.rest, "");
  channel.close();
});

test("PINGs are answered", async () => {
  const { scripted: server, channel } = scripted();
  const connecting = channel.connect();
  const socket = await server.connected();
  await connecting;
  socket.deliver(PING);
  assert.equal(await socket.frame(), PONG);
  channel.close();
});

test("a server that says nothing is given up", async () => {
  mock.timers.enable({ apis: ["Date", "setInterval"] });
  try {
    const { scripted: server, channel } = scripted();
    const connecting = channel.connect();
    const socket = await server.connected();
    await connecting;
    mock.timers.tick(30_000);
    assert.equal(await socket.frame(), PING);
    mock.timers.tick(30_000);
    assert.equal(await socket.frame(), PING);
    assert(!socket.isClosed);
    mock.timers.tick(30_000);
    assert(socket.isClosed);
    await server.socket();
    channel.close();
  } finally {
    mock.timers.reset();
  }
});

const REFUSED: [why: string, expected: RegExp, act: (socket: ScriptedSocket) => void][] = [
  ["that is plain", /plain fRPC/, (socket) => socket.deliver(PONG)],
  ["that sends text", /text/, (socket) => socket.onmessage?.({ data: "{}" })],
  ["that sends something else", /magic/, (socket) => socket.deliver("0000000000000000000000")],
];
for (const [why, expected, act] of REFUSED) {
  test(`a server ${why} is refused`, async () => {
    const { scripted: server, channel } = scripted({ backoff: { initialMs: 10_000, maxMs: 10_000 } });
    const connecting = channel.connect({ timeoutMs: 50 });
    const socket = await server.socket();
    socket.onopen?.({});
    act(socket);
    await socket.closed();
    await assert.rejects(connecting, expected);
    channel.close();
  });
}

test("a server without the sub-protocol is refused", async () => {
  const { scripted: server, channel } = scripted({ backoff: { initialMs: 10_000, maxMs: 10_000 } });
  const connecting = channel.connect({ timeoutMs: 50 });
  const socket = await server.socket();
  socket.protocol = "";
  socket.onopen?.({});
  await assert.rejects(connecting, /sub-protocol frpc/);
  channel.close();
});

test("credit without measure closes the connection", async () => {
  const { scripted: server, client, channel } = scripted();
  const first = client.count({ text: "hi" })[Symbol.asyncIterator]().next();
  const socket = await server.connected();
  const id = idOf(await socket.frame());
  socket.deliver(frame(id, 3, "027fffffff"));
  await assert.rejects(first, { code: Code.Unavailable });
  await socket.closed();
  channel.close();
});

test("the details of a failure are read as messages", () => {
  const words = toBinary(WordsSchema, { $typeName: "calls.Words", text: "why" });
  const any = toBinary(AnySchema, { $typeName: "google.protobuf.Any", typeUrl: "type.googleapis.com/calls.Words", value: words });
  const status = fromHex(`08051a${Buffer.from([any.length]).toString("hex")}${toHex(any)}`);
  const error = new RpcError(Code.NotFound, "gone", { details: status });
  assert.deepEqual(error.findDetails(WordsSchema).map(({ text }) => text), ["why"]);
  assert.deepEqual(error.findDetails(AnySchema), []);
  assert.deepEqual(new RpcError(Code.NotFound, "", { details: fromHex("1aff") }).details, []);
});

test("where there is no WebSocket, creating a channel says where to get one", () => {
  const there = Object.getOwnPropertyDescriptor(globalThis, "WebSocket");
  Object.defineProperty(globalThis, "WebSocket", { value: undefined, configurable: true, writable: true });
  try {
    assert.throws(() => createChannel("ws://test/"), /--experimental-websocket.*npm install ws.*webSocket: WebSocket/);
  } finally {
    Object.defineProperty(globalThis, "WebSocket", there ?? { value: undefined, configurable: true, writable: true });
  }
});

test("addresses of the web become those of WebSocket, and others are refused", () => {
  const options = { webSocket: class {} as never };
  assert.equal(createChannel("https://example.org/api#top", options).url, "wss://example.org/api");
  assert.equal(createChannel(new URL("http://example.org:8080"), options).url, "ws://example.org:8080/");
  assert.equal(createChannel("wss://example.org/", options).url, "wss://example.org/");
  assert.throws(() => createChannel("tcp://example.org", options), /ws:\/\/ or wss:\/\//);
});

