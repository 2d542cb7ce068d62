import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Channel, type ChannelOptions } from "../src/index.js";
import type { Codec } from "../src/codec.js";
import type { WebSocketLike } from "../src/index.js";

/** A step of a conversation in `tests/vectors/protocol.json`. */
export interface Step {
  from: "client" | "server";
  frames: { hex: string; means: string }[];
}

export interface Vectors {
  frames: { name: string; hex: string; means: Record<string, unknown>; encodes?: boolean }[];
  conversations: { name: string; replay: string[]; steps: Step[] }[];
}

export const vectors = JSON.parse(
  readFileSync(new URL("../../../../tests/vectors/protocol.json", import.meta.url), "utf8"),
) as Vectors;

export function conversation(name: string): Step[] {
  const found = vectors.conversations.find((known) => known.name === name);
  assert(found, `there is no conversation ${name}`);
  return found.steps;
}

export function fromHex(hex: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.from(hex, "hex"));
}

export function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

/** A WebSocket whose other end is a test. */
export class ScriptedSocket implements WebSocketLike {
  binaryType = "blob";
  readonly url = "ws://test/";
  bufferedAmount = 0;
  protocol = "frpc";
  isClosed = false;
  onopen: WebSocketLike["onopen"] = null;
  onmessage: WebSocketLike["onmessage"] = null;
  onclose: WebSocketLike["onclose"] = null;
  onerror: WebSocketLike["onerror"] = null;
  #received = Buffer.alloc(0);
  #wake: (() => void) | undefined;

  send(data: Uint8Array): void {
    assert(!this.isClosed, "nothing is sent on a closed socket");
    this.#received = Buffer.concat([this.#received, data]);
    this.#wake?.();
  }

  close(): void {
    this.isClosed = true;
    this.#wake?.();
  }

  /** Gives bytes to the side under test. */
  deliver(...hex: string[]): void {
    this.onmessage?.({ data: fromHex(hex.join("")).buffer });
  }

  /** Returns the next frame that the side under test sends. */
  async frame(): Promise<string> {
    for (;;) {
      if (this.#received.length >= 10) {
        const len = 10 + this.#received.readUInt32BE(6);
        if (this.#received.length >= len) {
          const frame = this.#received.subarray(0, len);
          this.#received = this.#received.subarray(len);
          return frame.toString("hex");
        }
      }
      assert(!this.isClosed, "the socket was closed instead");
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Waits until the side under test closes the socket. */
  async closed(): Promise<void> {
    while (!this.isClosed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Returns what was sent and not looked at. */
  get rest(): string {
    return this.#received.toString("hex");
  }
}

/** A channel whose connections are scripted. */
export class Scripted {
  readonly channel: Channel;
  readonly #sockets: ScriptedSocket[] = [];
  #wake: ((socket: ScriptedSocket) => void) | undefined;

  constructor(options: ChannelOptions = {}, codec?: Codec) {
    const opened = (socket: ScriptedSocket) => {
      const wake = this.#wake;
      this.#wake = undefined;
      if (wake) {
        wake(socket);
      } else {
        this.#sockets.push(socket);
      }
    };
    class Socket extends ScriptedSocket {
      constructor() {
        super();
        opened(this);
      }
    }
    this.channel = new Channel("ws://test/", { backoff: { initialMs: 1, maxMs: 1 }, ...options, webSocket: Socket }, codec);
  }

  /** Returns the next WebSocket that the channel makes. */
  socket(): Promise<ScriptedSocket> {
    const made = this.#sockets.shift();
    return made ? Promise.resolve(made) : new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /** Answers the next connection as the server of the vectors does, up to its HELLO. */
  async connected(hello = serverHello): Promise<ScriptedSocket> {
    const socket = await this.socket();
    socket.onopen?.({});
    await socket.frame();
    assert.equal(await socket.frame(), PING);
    socket.deliver(hello, PONG);
    return socket;
  }
}

export const PING = "000f0000000000000000";
export const PONG = "000f0000000100000000";
export const serverHello = conversation("plain_call").flatMap((step) => (step.from === "server" ? step.frames : []))[0]!.hex;

/** Returns a frame with its header. */
export function frame(id: number, operation: number, content: string): string {
  const header = Buffer.alloc(10);
  header.writeUInt16BE(0x000f, 0);
  header.writeUInt16BE(id, 2);
  header.writeUInt16BE(operation, 4);
  header.writeUInt32BE(content.length / 2, 6);
  return header.toString("hex") + content;
}

/** Returns text as hexadecimal. */
export function hex(text: string): string {
  return Buffer.from(text).toString("hex");
}

/** The frame of an answer to a unary call. */
export function answer(id: number, text: string): string {
  return frame(id, 4, `02000000000a${Buffer.from([text.length]).toString("hex")}${hex(text)}`);
}

/** Returns the id of a frame. */
export function idOf(sent: string): number {
  return Number.parseInt(sent.slice(4, 8), 16);
}

/** Lets everything happen that does not wait for the other side. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
