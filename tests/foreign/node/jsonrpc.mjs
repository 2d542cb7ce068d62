// Calls functions and services with clients of JSON-RPC: jsonrpc.mjs PORT CLIENT.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import jayson from "jayson/promise/index.js";
import { JSONRPCClient } from "json-rpc-2.0";
import * as lsp from "vscode-jsonrpc/node";
import WebSocket from "ws";

const [port, name] = process.argv.slice(2);
const host = "127.0.0.1";
const at = { host, port: Number(port) };
const url = `http://${host}:${port}/rpc`;

async function open() {
  const socket = new WebSocket(`ws://${host}:${port}/rpc`, "jsonrpc");
  await once(socket, "open");
  return socket;
}

// Each makes `call`, which returns a result or throws an error, and `notify`; some make `batch` as well, which returns the answers
// to two sums.
const clients = {
  "jayson-tcp": () => withJayson(jayson.Client.tcp(at)),
  "jayson-http": () => withJayson(jayson.Client.http({ ...at, path: "/rpc" })),
  "jayson-websocket": async () => withJayson(jayson.Client.websocket({ ws: await open() })),
  "json-rpc-2.0-fetch": () => withJsonRpc(async (client, message) => {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(message) });
    if (answer.status === 204) return;
    assert.match(answer.headers.get("content-type"), /^application\/json/);
    client.receive(await answer.json());
  }),
  "json-rpc-2.0-websocket": async () => {
    const socket = await open();
    const client = withJsonRpc((_, message) => socket.send(JSON.stringify(message)));
    socket.on("message", (text) => client.receive(JSON.parse(text)));
    return client;
  },
  "json-rpc-2.0-lines": async () => {
    const socket = connect(at).setEncoding("utf8");
    const client = withJsonRpc((_, message) => socket.write(`${JSON.stringify(message)}\n`));
    let text = "";
    socket.on("data", (more) => {
      const lines = (text + more).split("\n");
      text = lines.pop();
      lines.forEach((line) => client.receive(JSON.parse(line)));
    });
    return client;
  },
  "vscode-jsonrpc": async () => {
    const socket = connect(at);
    const connection = lsp.createMessageConnection(new lsp.SocketMessageReader(socket), new lsp.SocketMessageWriter(socket));
    connection.listen();
    return {
      call: (method, params) =>
        connection.sendRequest(method, Array.isArray(params) ? lsp.ParameterStructures.byPosition : lsp.ParameterStructures.byName,
          ...(Array.isArray(params) ? params : [params])),
      notify: (method, params) => connection.sendNotification(method, params),
    };
  },
};

function withJayson(client) {
  const settle = ({ error, result }) => {
    if (error) throw error;
    return result;
  };
  return {
    call: async (method, params) => settle(await client.request(method, params)),
    notify: (method, params) => client.request(method, params, null),
    batch: () => client.request([client.request("sum", [1, 2], undefined, false), client.request("sum", { a: 3, b: 4 }, undefined, false)]),
  };
}

function withJsonRpc(send) {
  const client = new JSONRPCClient((message) => send(client, message));
  return {
    call: (method, params) => client.request(method, params),
    notify: (method, params) => client.notify(method, params),
    batch: () => client.requestAdvanced([
      { jsonrpc: "2.0", id: "a", method: "sum", params: [1, 2] },
      { jsonrpc: "2.0", id: "b", method: "sum", params: { a: 3, b: 4 } },
    ]),
    receive: (message) => client.receive(message),
  };
}

const client = await clients[name]();
const fails = async (call) => {
  const error = await call.then(() => assert.fail("it answered"), (error) => error);
  return [error.code, error.message, error.data];
};

assert.equal(await client.call("sum", [1, 2]), 3);
assert.equal(await client.call("sum", { b: 40, a: 2 }), 42);
const long = "ü☺\"\\\n".repeat(20_000);
assert.equal(await client.call("echo", [long]), long);
const three = await Promise.all([1, 2, 3].map((number) => client.call("sum", [number, 100])));
assert.deepEqual(three, [101, 102, 103]);

const text = `from ${name}`;
await client.notify("note", { text });
// Over HTTP and over TCP, jayson notifies on a connection of its own.
while (!(await client.call("notes", [])).includes(text));

const [bad, why] = await fails(client.call("sum", [1, "two"]));
assert.equal(bad, -32602);
assert.match(why, /`b`/);
const [none] = await fails(client.call("nothing", []));
assert.equal(none, -32601);
const [, message, data] = await fails(client.call("missing", []));
assert.equal(message, "nobody is here");
assert.equal(data.code, "not_found");

for (const method of ["helloworld.Greeter/SayHello", "Greeter.SayHello"]) {
  assert.deepEqual(await client.call(method, { name }), { message: `Hello ${name}!` });
  assert.deepEqual(await client.call(method, [name]), { message: `Hello ${name}!` });
  assert.equal((await fails(client.call(method, {})))[1], "who is there?");
}
if (client.batch) {
  const answers = await client.batch();
  assert.deepEqual(answers.map((answer) => answer.result).sort(), [3, 7]);
}
console.log("all went well");
process.exit();
