import assert from "node:assert/strict";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { Code, createClient, type Interceptor, RpcError } from "../src/index.js";
import { Test, WordsSchema } from "./gen/test_pb.js";
import { hex, Scripted } from "./support.js";

/** Answers in place of a server, with what it is asked. */
const answering: Interceptor = async function* ({ method, input, headers }) {
  const text = method.methodKind === "unary" || method.methodKind === "server_streaming" ? (input as { text: string }).text : "stream";
  yield create(WordsSchema, { text: `${method.name} ${text} ${headers.get("x-id")}` });
};

test("interceptors see calls of all kinds, the first first", async () => {
  const seen: string[] = [];
  const noting = (name: string): Interceptor => async function* (call, next) {
    seen.push(`${name} asks`);
    call.headers.append("x-id", name);
    yield* next(call);
    seen.push(`${name} is answered`);
  };
  const { channel } = new Scripted({ interceptors: [noting("a"), noting("b"), answering] });
  const client = createClient(Test, channel);
  const none = async function* () {};
  assert.equal((await client.say({ text: "hi" })).text, "Say hi a");
  assert.deepEqual(seen, ["a asks", "b asks", "b is answered", "a is answered"]);
  assert.equal((await client.say({ text: "hi" }, { headers: { "X-Id": "7" } })).text, "Say hi 7");
  assert.equal((await client.gather(none())).text, "Gather stream a");
  for (const answers of [client.count({ text: "hi" }), client.chat(none())]) {
    for await (const { text } of answers) {
      assert.match(text, /^(Count hi|Chat stream) a$/);
    }
  }
  channel.close();
});

test("an interceptor can change a call, and try again", async () => {
  const again: Interceptor = async function* (call, next) {
    call.headers.set("token", "old");
    try {
      yield* next(call);
    } catch (error) {
      assert(error instanceof RpcError && error.code === Code.Unauthenticated);
      call.headers.set("token", "new");
      yield* next(call);
    }
  };
  const scripted = new Scripted({ interceptors: [again] });
  const call = createClient(Test, scripted.channel).say({ text: "hi" });
  const socket = await scripted.connected();
  assert((await socket.frame()).includes(hex("old")));
  socket.deliver("000f000100040000000b0300000006040000000110");
  assert((await socket.frame()).includes(hex("new")));
  socket.deliver("000f00020004000000090200000000" + "0a026f6b");
  assert.equal((await call).text, "ok");
  scripted.channel.close();
});

test("an interceptor that answers nothing fails the call", async () => {
  const { channel } = new Scripted({ interceptors: [async function* () {}] });
  await assert.rejects(createClient(Test, channel).say({ text: "hi" }), { code: Code.Internal });
  channel.close();
});
