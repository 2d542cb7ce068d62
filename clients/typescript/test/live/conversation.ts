import { Code, createChannel, createClient, implement, type Metadata, RpcError } from "../../src/index.js";
import { Callback } from "../gen/callback_pb.js";
import { Test } from "../gen/test_pb.js";

/** Fails the conversation unless two values say the same. */
function same(actual: unknown, expected: unknown): void {
  const [one, other] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (one !== other) {
    throw new Error(`${one} came, ${other} was expected`);
  }
}

/** Returns the code and text of a call that fails. */
async function failure(call: Promise<unknown>): Promise<[Code, string]> {
  try {
    await call;
  } catch (error) {
    if (error instanceof RpcError) {
      return [error.code, error.rawMessage];
    }
    throw error;
  }
  throw new Error("the call did not fail");
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

/** Has a conversation with the service of our tests, in browsers as in programs. Throws where something is not as it should be. */
export async function converse(url: string, format: "proto" | "json"): Promise<void> {
  let aborted = () => {};
  const wasAborted = new Promise<void>((resolve) => {
    aborted = resolve;
  });
  const callback = implement(Callback, {
    async say({ text }, { signal }) {
      if (text === "fail") {
        throw new RpcError(Code.AlreadyExists, "twice");
      }
      if (text === "wait") {
        signal.addEventListener("abort", aborted);
        await wasAborted;
      }
      return { text: `client heard ${text}` };
    },
    async *count({ text }) {
      yield* words(...text.split(" "));
    },
    async gather(messages) {
      return { text: (await texts(messages)).join("+") };
    },
    async *chat(messages) {
      for await (const { text } of messages) {
        yield { text: `client: ${text}` };
      }
    },
  });
  const channel = createChannel(url, { format, services: [callback] });
  const test = createClient(Test, channel);

  // Each kind of call.
  same((await test.say({ text: "hi ☺" })).text, "hi ☺");
  same(await texts(test.count({ text: "a, b, c" })), ["a", "b", "c"]);
  same((await test.gather(words("a", "b"))).text, "a b");
  same(await texts(test.chat(words("a", "b"))), ["re: a", "re: b"]);

  // A stream each way, in turns.
  let answered = () => {};
  const turns = (async function* () {
    for (const text of ["1", "2", "3"]) {
      const next = new Promise<void>((resolve) => {
        answered = resolve;
      });
      yield { text };
      await next;
    }
  })();
  const heard: string[] = [];
  for await (const { text } of test.chat(turns)) {
    heard.push(text);
    answered();
  }
  same(heard, ["re: 1", "re: 2", "re: 3"]);

  // Many at once, and large ones, which come in pieces.
  const many = await Promise.all(Array.from({ length: 500 }, (_, n) => test.say({ text: `${n}` })));
  same(many.every(({ text }, n) => text === `${n}`), true);
  same((await test.say({ text: "large 1000000" })).text.length, 1_000_000);
  same((await test.say({ text: "y".repeat(1_000_000) })).text.length, 1_000_000);

  // Credit both ways: far more than a window.
  const large = Array.from({ length: 100 }, () => "large 20000").join(", ");
  same((await texts(test.count({ text: large }))).every((text) => text.length === 20_000), true);
  same((await test.gather(words(...Array<string>(100).fill("z".repeat(20_000))))).text.length, 100 * 20_001 - 1);

  // Metadata both ways; the server sends back what it gets.
  const seen: { header?: Metadata; trailer?: Metadata } = {};
  const noting = {
    headers: { "echo-text": "one", "echo-bytes-bin": new Uint8Array([0, 255]) },
    onHeader: (metadata: Metadata) => (seen.header = metadata),
    onTrailer: (metadata: Metadata) => (seen.trailer = metadata),
  };
  await test.say({ text: "hi" }, noting);
  same([seen.header?.get("echo-text"), [...(seen.header?.getBinary("echo-bytes-bin") ?? [])]], ["one", [0, 255]]);
  same(seen.trailer?.get("echo-text"), "one");

  // Failures.
  same(await failure(test.say({ text: "fail 5 no such word" })), [Code.NotFound, "no such word"]);
  same(await failure(texts(test.count({ text: "a, fail 9 not now" }))), [Code.FailedPrecondition, "not now"]);
  same(await failure(test.gather(words("fail 7 you"))), [Code.PermissionDenied, "you"]);
  same((await failure(test.say({ text: "panic" })))[0], Code.Internal);

  // Time, on both sides, and callers that give up.
  same((await failure(test.say({ text: "wait" }, { timeoutMs: 50 })))[0], Code.DeadlineExceeded);
  same((await failure(texts(test.count({ text: "first wait" }, { timeoutMs: 50 }))))[0], Code.DeadlineExceeded);
  const abort = new AbortController();
  const aborting = failure(test.say({ text: "wait" }, { signal: abort.signal }));
  // Its answer comes behind that call on the same connection, so that one is with the server by then.
  await test.say({ text: "hi" });
  abort.abort();
  same((await aborting)[0], Code.Canceled);
  for await (const { text } of test.count({ text: "endless tick" })) {
    same(text, "tick");
    break;
  }

  // Calls of the server, of each kind.
  same((await test.say({ text: "back say hi" })).text, "client heard hi");
  same((await test.say({ text: "back count a b" })).text, "a b");
  same((await test.say({ text: "back gather a b c" })).text, "a+b+c");
  same((await test.say({ text: "back chat a b" })).text, "client: a client: b");
  same(await failure(test.say({ text: "back say fail" })), [Code.AlreadyExists, "twice"]);
  // Its handler is dropped with the call that it makes, and that with the call of ours.
  same((await failure(test.say({ text: "back say wait" }, { timeoutMs: 100 })))[0], Code.DeadlineExceeded);
  await wasAborted;

  // The same connection took all of that; a lost one is made again.
  same((await test.say({ text: "visit" })).text, "1");
  same((await test.say({ text: "visit" })).text, "2");
  // It fails when the connection is lost.
  const lost = failure(texts(test.count({ text: "first wait" })));
  same((await failure(test.say({ text: "bye" })))[0], Code.Aborted);
  same((await lost)[0], Code.Unavailable);
  same((await test.say({ text: "visit" })).text, "1");
  channel.close();
}
