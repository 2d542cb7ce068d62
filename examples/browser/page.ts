// A live chart of the server's load and a chat. Both are streams on the same connection.
import { createChannel, createClient, RpcError } from "frisbee-rpc";
import { Board, type Line, type Sample } from "./gen/browser_pb.js";

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

// ANCHOR: connect
// Connect to the server of this page.
const channel = createChannel("/", {
  onState: (state) => {
    element("state").textContent = state;
    element("state").dataset["state"] = state;
  },
});
const board = createClient(Board, channel);
// ANCHOR_END: connect

/** Restarts a stream whenever it ends, for example because the server was restarted. */
async function forEver(stream: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      await stream();
    } catch (error) {
      console.log(error instanceof RpcError ? error.message : error);
    }
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

// The chart. The newest sample is on the right.
const INTERVAL_MS = 200;
const SAMPLES_MAX = 101;
const samples: Sample[] = [];
let count = 0;

void forEver(async () => {
  // ANCHOR: watch
  for await (const sample of board.watch({ intervalMs: INTERVAL_MS })) {
    samples.push(sample);
    samples.splice(0, samples.length - SAMPLES_MAX);
    draw(sample);
  }
  // ANCHOR_END: watch
});

function draw({ busy, people, lines }: Sample): void {
  const oldest = SAMPLES_MAX - samples.length;
  const curve = samples.map(({ busy }, index) => `${oldest + index} ${(100 * (1 - busy)).toFixed(1)}`).join("L");
  element("curve").setAttribute("d", `M${curve}`);
  element("area").setAttribute("d", `M${oldest} 100L${curve}V100Z`);
  const figures = element("figures");
  figures.textContent = `${Math.round(busy * 100)} % busy · ${people} in the room · ${lines} said`;
  count += 1;
  figures.dataset["samples"] = `${count}`;
}

// The chat. Lines written while disconnected are queued here.
const unsaid: { name: string; text: string }[] = [];
const waiting: (() => void)[] = [];

async function* said() {
  for (;;) {
    for (let line = unsaid[0]; line !== undefined; line = unsaid[0]) {
      yield line;
      // Remove the line only after it was sent: a call that has ended takes no more lines.
      unsaid.shift();
    }
    await new Promise<void>((resolve) => waiting.push(resolve));
  }
}

void forEver(async () => {
  // ANCHOR: join
  for await (const line of board.join(said())) {
    show(line);
  }
  // ANCHOR_END: join
});

element("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = element<HTMLInputElement>("text");
  unsaid.push({ name: element<HTMLInputElement>("name").value, text: text.value });
  text.value = "";
  waiting.splice(0).forEach((wake) => wake());
});

function show({ name, text }: Line): void {
  const item = document.createElement("li");
  const who = document.createElement("b");
  who.textContent = name;
  item.append(who, text);
  const lines = element("lines");
  lines.append(item);
  lines.scrollTop = lines.scrollHeight;
}

