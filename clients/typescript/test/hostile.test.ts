import assert from "node:assert/strict";
import { test } from "node:test";
import { type ChannelOptions, Code, createClient, implement, RpcError } from "../src/index.js";
import { FrameDecoder } from "../src/wire/frames.js";
import { Stream } from "../src/wire/stream.js";
import { Test } from "./gen/test_pb.js";
import {
  answer,
  frame,
  fromHex,
  idOf,
  PING,
  Scripted,
  type ScriptedSocket,
  settled,
  toHex,
  vectors,
} from "./support.js";

/** Numbers below a bound, the same in each run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const FRAMES = [
  ...vectors.conversations.flatMap(({ steps }) => steps.flatMap(({ frames }) => frames.map(({ hex }) => hex))),
  ...vectors.frames.map(({ hex }) => hex),
  frame(0x8000, 2, "10000a0100000000"),
  frame(0x8000, 2, "10000d0100000000"),
  frame(0x8000, 2, "11000000030a0161"),
];

test("whatever a server sends, every call ends and nothing is thrown", async () => {
  for (let seed = 0; seed < 300; seed++) {
    const next = numbers(seed);
    const service = implement(Test, {
      say: ({ text }) => ({ text }),
      async *chat(messages) {
        yield* messages;
      },
    });
    const scripted = new Scripted({ services: [service] });
    const client = createClient(Test, scripted.channel);
    const ends = Promise.allSettled([
      client.say({ text: "hi" }),
      client.gather((async function* () {})()),
      (async () => {
        for await (const _ of client.count({ text: "hi" })) {
          // Each may be the last.
        }
      })(),
    ]);
    const socket = await scripted.connected();
    for (let n = 0; n < 20; n++) {
      const bytes = fromHex(FRAMES[next(FRAMES.length)]!);
      for (let changes = next(4); changes > 0; changes--) {
        bytes[10 + next(Math.max(1, bytes.length - 10))] = next(256);
      }
      // Cut off, now and then, and the rest comes with the next.
      socket.deliver(toHex(next(20) === 0 ? bytes.subarray(0, next(bytes.length)) : bytes));
      await settled();
    }
    scripted.channel.close();
    for (const result of await ends) {
      assert(result.status === "fulfilled" || result.reason instanceof RpcError, `seed ${seed}: ${String((result as PromiseRejectedResult).reason)}`);
    }
  }
});

/** A call with requests that never come to an end, and whether it has told them that no more are needed. */
function endless() {
  const state = { isOver: false };
  const requests = async function* () {
    try {
      for (;;) {
        yield { text: "more" };
      }
    } finally {
      state.isOver = true;
    }
  };
  return { state, requests: requests() };
}

async function drain(answers: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of answers) {
    // They are of no interest.
  }
}

/** Each kind of call, begun and not answered. The requests of streams have run out of credit. */
const KINDS: Record<string, (client: ReturnType<typeof createClient<typeof Test>>, requests: AsyncIterable<{ text: string }>) => Promise<unknown>> = {
  "a unary call": (client) => client.say({ text: "hi" }),
  "a stream of answers": (client) => drain(client.count({ text: "hi" })),
  "a stream of requests": (client, requests) => client.gather(requests),
  "a stream each way": (client, requests) => drain(client.chat(requests)),
};

/** The ways in which a server leaves a call, and the code with which that fails. Those of a stream alone do not concern unary calls. */
const ENDS: Record<string, { act: (socket: ScriptedSocket, id: number) => void; code: Code; ofStream?: true }> = {
  "is gone": { act: (socket) => socket.onclose?.({ code: 1006, reason: "" }), code: Code.Unavailable },
  "fails": { act: (socket) => socket.onerror?.({}), code: Code.Unavailable },
  "sends no frames": { act: (socket) => socket.deliver("ffffffffffffffffffff"), code: Code.Unavailable },
  "announces too much": { act: (socket) => socket.deliver("000f000100047fffffff"), code: Code.Unavailable },
  "cuts a CREDIT off": { act: (socket, id) => socket.deliver(frame(id, 3, "02ffff")), code: Code.Unavailable },
  "closes the stream": { act: (socket, id) => socket.deliver(frame(id, 2, "")), code: Code.Canceled, ofStream: true },
  "gives credit beyond measure": { act: (socket, id) => socket.deliver(frame(id, 3, "02ffffffff")), code: Code.Unavailable, ofStream: true },
  "cuts a message off": { act: (socket, id) => socket.deliver(frame(id, 2, "11000000ff0a")), code: Code.Internal, ofStream: true },
  "sends what is no message": { act: (socket, id) => socket.deliver(frame(id, 2, "1100000002ffff")), code: Code.Internal, ofStream: true },
  "cuts an END off": { act: (socket, id) => socket.deliver(frame(id, 2, "13000000ff")), code: Code.Internal, ofStream: true },
  "fails without a code": { act: (socket, id) => socket.deliver(frame(id, 2, "0300000000")), code: Code.Unknown, ofStream: true },
};

for (const [kind, begin] of Object.entries(KINDS)) {
  for (const [what, { act, code, ofStream }] of Object.entries(ENDS)) {
    if (ofStream && kind === "a unary call") {
      continue;
    }
    test(`${kind} ends when the server ${what}`, async () => {
      const scripted = new Scripted({ timeoutMs: 0, backoff: { initialMs: 10_000, maxMs: 10_000 } });
      const { state, requests } = endless();
      const call = begin(createClient(Test, scripted.channel), requests);
      const socket = await scripted.connected();
      const id = idOf(await socket.frame());
      await settled();
      act(socket, id);
      await assert.rejects(call, (error: RpcError) => error instanceof RpcError && error.code === code && !error.notSent);
      await settled();
      assert.equal(state.isOver, kind.startsWith("a stream of requests") || kind.startsWith("a stream each way"));
      scripted.channel.close();
    });
  }
}

test("handlers end when the server is gone in the middle of each kind of stream", async () => {
  const ended: string[] = [];
  const ending = async function* (name: string, body: AsyncIterable<{ text: string }>) {
    try {
      yield* body;
    } finally {
      ended.push(name);
    }
  };
  const service = implement(Test, {
    say: (words) => words,
    count: () => ending("count", endless().requests),
    gather: async (requests) => {
      await drain(ending("gather", requests));
      return {};
    },
    chat: (requests) => ending("chat", requests),
  });
  const scripted = new Scripted({ services: [service], backoff: { initialMs: 10_000, maxMs: 10_000 } });
  const connecting = scripted.channel.connect();
  const socket = await scripted.connected();
  await connecting;
  ["0b", "0c", "0d"].forEach((operation, n) => {
    socket.deliver(frame(0x8000 + n, 2, `1000${operation}0100000000`), frame(0x8000 + n, 2, "11000000030a0161"));
  });
  await settled();
  assert.deepEqual(ended, []);
  socket.onclose?.({ code: 1006, reason: "" });
  await settled();
  assert.deepEqual(ended.sort(), ["chat", "count", "gather"]);
  scripted.channel.close();
});

/** Frames about calls and streams that are not there, and kinds that nobody knows. */
const STRAY = [
  answer(77, "hi"),
  frame(77, 4, "0300000000"),
  frame(77, 4, ""),
  frame(77, 4, "7f"),
  frame(77, 2, "11000000030a0161"),
  frame(77, 2, ""),
  frame(0x8001, 2, ""),
  frame(77, 3, "027fffffff"),
  frame(77, 3, "050004"),
  frame(77, 3, "040004"),
  frame(77, 3, "7f"),
  frame(77, 3, ""),
  frame(77, 9, "00"),
  frame(77, 0xffff, "00"),
];

test("what a server sends about calls that are not there changes nothing", async () => {
  const { scripted, socket, client } = await connected();
  for (const stray of STRAY) {
    const call = client.say({ text: "hi" });
    const id = idOf(await socket.frame());
    socket.deliver(stray, answer(id, "ok"), answer(id, "again"));
    assert.equal((await call).text, "ok", stray);
  }
  assert.equal(socket.rest, "");
  assert(!socket.isClosed);
  scripted.channel.close();
});

test("an answer that cannot be read fails its call alone", async () => {
  const { scripted, socket, client } = await connected();
  for (const content of ["02", "0200", "02000000ff", "0200000000ffff", "02000000050100000008", "03", "03000000ff"]) {
    const call = client.say({ text: "hi" });
    socket.deliver(frame(idOf(await socket.frame()), 4, content));
    await assert.rejects(call, { code: Code.Internal }, content);
  }
  assert(!socket.isClosed);
  scripted.channel.close();
});

test("a second answer to a stream of requests fails the call", async () => {
  const { scripted, socket, client } = await connected();
  const call = client.gather(endless().requests);
  const message = "000000030a0161";
  socket.deliver(frame(idOf(await socket.frame()), 2, `11${message}${message}`));
  await assert.rejects(call, { code: Code.Internal });
  scripted.channel.close();
});

test("the end behind an answer to a stream of requests is not waited for without limit", async () => {
  const { scripted, socket, client } = await connected({ timeoutMs: 50 });
  const call = client.gather(endless().requests);
  socket.deliver(frame(idOf(await socket.frame()), 2, "11000000030a0161"));
  await assert.rejects(call, { code: Code.DeadlineExceeded });
  scripted.channel.close();
});

test("a server that says nothing at all is given up", async () => {
  const scripted = new Scripted({ connectTimeoutMs: 20, backoff: { initialMs: 10_000, maxMs: 10_000 } });
  const connecting = scripted.channel.connect({ timeoutMs: 100 });
  const socket = await scripted.socket();
  socket.onopen?.({});
  await assert.rejects(connecting, /longer than 20 ms \(connectTimeoutMs\)/);
  assert(socket.isClosed);
  scripted.channel.close();
});

test("a content can come in pieces and chunks of any size", () => {
  const decoder = new FrameDecoder(1000);
  const bytes = fromHex(frame(7, 5, "0014000003e800") + Array.from({ length: 999 }, (_, n) => frame(7, 5, toHex(Uint8Array.of(n)))).join(""));
  const frames = [...bytes].flatMap((byte) => [...decoder.push(Uint8Array.of(byte))]);
  assert.equal(frames.length, 1);
  assert.equal(toHex(frames[0]!.content), `00${toHex(Uint8Array.from({ length: 999 }, (_, n) => n))}`);
});

test("data that waits for its reader does not keep what came with it", async () => {
  const port = { sendData() {}, sendCredit() {}, sendClose() {}, ended() {}, isBehind: false };
  const stream = new Stream(1, port, Infinity, 1000, 1000);
  stream.handleData(new Uint8Array(1_000_000).subarray(0, 5));
  assert.equal((await stream.read())?.buffer.byteLength, 5);
});

test("a server that asks and does not read the answers is given up", async () => {
  const service = implement(Test, { say: (words) => words });
  for (const ask of [PING, frame(5, 4, "01000a0100000000"), frame(5, 4, "0400000000000a"), frame(0x8000, 2, "10000a0100000000")]) {
    const { scripted, socket } = await connected({ services: [service], unreadLenMax: 10_000, backoff: { initialMs: 10_000, maxMs: 10_000 } });
    // One that reads may ask for as long as it likes.
    for (let n = 0; n < 2000; n++) {
      socket.deliver(ask);
      await settled();
    }
    assert(!socket.isClosed, ask);
    socket.bufferedAmount = 1_000_000;
    for (let n = 0; n < 2000 && !socket.isClosed; n++) {
      socket.deliver(ask);
      await settled();
    }
    assert(socket.isClosed, ask);
    scripted.channel.close();
  }
});

test("streams wait while more is to be sent than the connection takes, whatever their credit", async () => {
  const { scripted, socket, client } = await connected();
  socket.bufferedAmount = 5_000_000;
  const call = client.gather(endless().requests);
  const id = idOf(await socket.frame());
  await settled();
  assert.equal(socket.rest, "");
  socket.bufferedAmount = 0;
  assert.match(await socket.frame(), /^.{20}11/);
  socket.bufferedAmount = 5_000_000;
  socket.deliver(frame(id, 2, ""));
  await assert.rejects(call, { code: Code.Canceled });
  scripted.channel.close();
});

async function connected(options: ChannelOptions = {}) {
  const scripted = new Scripted(options);
  const connecting = scripted.channel.connect();
  const socket = await scripted.connected();
  await connecting;
  return { scripted, socket, client: createClient(Test, scripted.channel) };
}
