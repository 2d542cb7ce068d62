import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { type Codec, proto } from "../src/codec.js";
import { type CallOptions, Code, createClient, type Metadata, RpcError } from "../src/index.js";
import { Test } from "./gen/test_pb.js";
import { conversation, fromHex, PING, Scripted, type ScriptedSocket, toHex } from "./support.js";

/** The format of most conversations: for the one message that there is, three bytes in front of those of protocol buffers. */
const polyglot: Codec = {
  format: 0,
  encode: (schema, message) => fromHex(`080005${toHex(proto.encode(schema, message))}`),
  decode: (schema, bytes) => proto.decode(schema, bytes.subarray(3)),
};

const HEADERS = { headers: { "x-id": "7", "trace-bin": fromHex("00ff") } };

type Caller = ReturnType<typeof createClient<typeof Test>>;

/** Plays a conversation: says what the server says, and compares what the client sends. */
async function play(name: string, codec: Codec, act: (test: Caller, socket: ScriptedSocket) => Promise<void>): Promise<void> {
  const steps = conversation(name);
  const [hello, pong] = conversation(name).flatMap((step) => (step.from === "server" ? step.frames : []));
  const scripted = new Scripted({ timeoutMs: 60_000, window: 5000 }, codec);
  const socket = scripted.socket();
  const acting = socket.then((open) => act(createClient(Test, scripted.channel), open));
  const connecting = scripted.channel.connect();
  const open = await socket;
  open.onopen?.({});
  await open.frame();
  assert.equal(await open.frame(), PING);
  open.deliver(hello!.hex, pong!.hex);
  await connecting;
  const greeting = { client: 2, server: 2 };
  for (const { from, frames } of steps) {
    const skipped = Math.min(greeting[from], frames.length);
    greeting[from] -= skipped;
    const rest = frames.slice(skipped);
    if (from === "server") {
      open.deliver(...rest.map(({ hex }) => hex));
      continue;
    }
    for (const { hex } of rest.flatMap(separate)) {
      assert.equal(await open.frame(), hex);
    }
  }
  await acting;
  assert.equal(open.rest, "", "the client says nothing else");
  scripted.channel.close();
}

/** Two messages in one frame of the vectors are two frames of ours. */
function separate({ hex }: { hex: string }): { hex: string }[] {
  const bytes = Buffer.from(hex, "hex");
  if (bytes.readUInt16BE(4) !== 2 || bytes[10] !== 0x11) {
    return [{ hex }];
  }
  const frames: { hex: string }[] = [];
  for (let at = 11; at < bytes.length; ) {
    const end = at + 4 + bytes.readUInt32BE(at);
    const header = Buffer.from(bytes.subarray(0, 11));
    header.writeUInt32BE(1 + end - at, 6);
    frames.push({ hex: toHex(header) + toHex(bytes.subarray(at, end)) });
    at = end;
  }
  return frames;
}

function entries(metadata: Metadata | undefined): [string, string][] {
  return [...(metadata ?? [])].map(([name, value]) => [name, typeof value === "string" ? value : toHex(value)]);
}

/** Options that note the metadata of an answer. */
function noting(options: CallOptions = {}): { options: CallOptions; seen: { header?: Metadata; trailer?: Metadata } } {
  const seen: { header?: Metadata; trailer?: Metadata } = {};
  return {
    seen,
    options: {
      ...options,
      onHeader: (metadata) => {
        seen.header = metadata;
      },
      onTrailer: (metadata) => {
        seen.trailer = metadata;
      },
    },
  };
}

async function texts(messages: AsyncIterable<{ text: string }>): Promise<string[]> {
  const all: string[] = [];
  for await (const { text } of messages) {
    all.push(text);
  }
  return all;
}

async function* words(...all: string[]) {
  for (const text of all) {
    yield { text };
  }
}

function assertFailed(error: unknown): true {
  assert(error instanceof RpcError);
  assert.equal(error.code, Code.NotFound);
  assert.equal(error.rawMessage, "no such order");
  assert.equal(error.message, "not_found: no such order");
  assert.equal(toHex(error.encodedStatus!), "0805");
  assert.deepEqual(entries(error.metadata), [["why-bin", "01"]]);
  return true;
}

test("a unary call with metadata and a timeout", async () => {
  mock.timers.enable({ apis: ["Date"] });
  try {
    await play("call_with_head", polyglot, async (client) => {
      const { options, seen } = noting({ ...HEADERS, timeoutMs: 2000 });
      assert.equal((await client.say({ text: "hi" }, options)).text, "hi");
      assert.deepEqual(entries(seen.header), [["served-by", "vectors"]]);
      assert.deepEqual(entries(seen.trailer), [["cost-bin", "00ff"]]);
    });
  } finally {
    mock.timers.reset();
  }
});

test("a unary call that its caller aborts", async () => {
  mock.timers.enable({ apis: ["Date"] });
  try {
    await play("withdrawn_request", polyglot, async (client) => {
      const abort = new AbortController();
      const call = client.say({ text: "wait" }, { timeoutMs: 2000, signal: abort.signal });
      setImmediate(() => abort.abort(new Error("enough")));
      await assert.rejects(call, (error: RpcError) => {
        assert.equal(error.code, Code.Canceled);
        assert.equal((error.cause as Error).message, "enough");
        return true;
      });
    });
  } finally {
    mock.timers.reset();
  }
});

test("a stream of answers with metadata both ways", async () => {
  await play("stream_of_answers", polyglot, async (client) => {
    const { options, seen } = noting(HEADERS);
    assert.deepEqual(await texts(client.count({ text: "a b" }, options)), ["a", "b"]);
    assert.deepEqual(entries(seen.header), [["served-by", "vectors"]]);
    assert.deepEqual(entries(seen.trailer), [["cost-bin", "00ff"]]);
  });
});

test("a stream of requests", async () => {
  await play("stream_of_requests", polyglot, async (client) => {
    assert.equal((await client.gather(words("a", "b"))).text, "a b");
  });
});

test("a stream each way", async () => {
  await play("conversation", polyglot, async (client) => {
    let answered = () => {};
    const first = new Promise<void>((resolve) => {
      answered = resolve;
    });
    const requests = async function* () {
      yield { text: "a" };
      await first;
    };
    const all: string[] = [];
    for await (const { text } of client.chat(requests())) {
      all.push(text);
      answered();
    }
    assert.deepEqual(all, ["re: a"]);
  });
});

test("a stream of answers that fails", async () => {
  await play("failed_stream", polyglot, async (client) => {
    const all: string[] = [];
    await assert.rejects(async () => {
      for await (const { text } of client.count({ text: "a fail" })) {
        all.push(text);
      }
    }, assertFailed);
    assert.deepEqual(all, ["a"]);
  });
});

test("a unary call in protocol buffers", async () => {
  await play("request_in_protocol_buffers", proto, async (client) => {
    assert.equal((await client.say({ text: "hi" })).text, "hi");
  });
});

test("a stream of answers in protocol buffers", async () => {
  await play("stream_in_protocol_buffers", proto, async (client) => {
    assert.deepEqual(await texts(client.count({ text: "a b" })), ["a", "b"]);
  });
});

test("a method that the server does not have", async () => {
  await play("method_whose_number_is_taken", proto, async (client) => {
    await assert.rejects(client.say({ text: "hi" }), (error: RpcError) => error.code === Code.Unimplemented && error.notSent);
  });
});
