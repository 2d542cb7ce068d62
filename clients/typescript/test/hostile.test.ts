import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient, implement, RpcError } from "../src/index.js";
import { Test } from "./gen/test_pb.js";
import { frame, fromHex, Scripted, toHex, vectors } from "./support.js";

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
      await new Promise((resolve) => setImmediate(resolve));
    }
    scripted.channel.close();
    for (const result of await ends) {
      assert(result.status === "fulfilled" || result.reason instanceof RpcError, `seed ${seed}: ${String((result as PromiseRejectedResult).reason)}`);
    }
  }
});
