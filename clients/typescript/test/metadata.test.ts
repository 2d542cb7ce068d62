import assert from "node:assert/strict";
import { test } from "node:test";
import { backoffMs } from "../src/backoff.js";
import { Metadata } from "../src/index.js";
import { Allowance } from "../src/wire/allowance.js";

test("metadata keeps the order of values, whatever it is made of", () => {
  const expected = [["a", "1"], ["b", "2"], ["a", "3"]];
  assert.deepEqual([...new Metadata([["A", "1"], ["b", "2"], ["a", "3"]])], expected);
  assert.deepEqual([...new Metadata(new Metadata([["a", "1"], ["b", "2"], ["a", "3"]]))], expected);
  assert.deepEqual([...new Metadata({ a: ["1", "2"], "c-bin": new Uint8Array([1]) })], [["a", "1"], ["a", "2"], ["c-bin", new Uint8Array([1])]]);
  assert.deepEqual([...new Metadata(new Headers({ "X-Id": "7" }))], [["x-id", "7"]]);
});

test("names of metadata are looked up in any case", () => {
  const metadata = new Metadata({ "X-Id": "7", "trace-bin": new Uint8Array([255]) });
  assert.equal(metadata.get("x-ID"), "7");
  assert.equal(metadata.get("trace-bin"), undefined);
  assert.deepEqual(metadata.getBinary("Trace-Bin"), new Uint8Array([255]));
  assert(metadata.has("X-ID"));
  metadata.append("x-id", "8");
  assert.deepEqual(metadata.getAll("X-id"), ["7", "8"]);
  metadata.set("x-id", "9");
  assert.deepEqual(metadata.getAll("x-id"), ["9"]);
  metadata.delete("X-ID");
  assert.equal(metadata.size, 1);
});

test("what metadata cannot be is refused", () => {
  for (const [name, value] of [["", "v"], ["a b", "v"], ["ü", "v"], ["a", "ü"], ["a", "line\n"], ["a-bin", "text"], ["a", new Uint8Array()]] as const) {
    assert.throws(() => new Metadata([[name, value]]), TypeError, name);
  }
});

test("the pauses of backoff double up to the longest, less up to a half", () => {
  const backoff = { initialMs: 100, maxMs: 1000 };
  assert.deepEqual([0, 1, 2, 3, 4, 5, 100].map((failures) => backoffMs(backoff, failures, 0)), [100, 100, 200, 400, 800, 1000, 1000]);
  assert.equal(backoffMs(backoff, 3, 1), 200);
});

test("an allowance is refilled in ten seconds", () => {
  const allowance = new Allowance(2, 0);
  assert.deepEqual([0, 0, 0, 4999, 5000, 5000].map((at) => allowance.take(at)), [true, true, false, false, true, false]);
  assert.deepEqual([60_000, 60_000, 60_000].map((at) => allowance.take(at)), [true, true, false]);
});
