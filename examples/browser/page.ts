// A live chart of what the server measures, and a chat: both are streams of one connection.
import { createChannel, createClient, RpcError } from "@frisbee/frpc";
import { Board, type Line, type Sample } from "./gen/browser_pb.js";

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

// The server that the page came from.
const channel = createChannel("/", {
  onState: (state) => {
    element("state").textContent = state;
  },
});
const board = createClient(Board, channel);

/** Does something again and again: a stream ends when its server goes, and begins anew when there is one again. */
async function forEver(stream: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      await stream();
    } catch (error) {
      console.log(error instanceof RpcError ? error.message : error);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

// The chart.
const SAMPLES_MAX = 100;
const samples: Sample[] = [];

void forEver(async () => {
  for await (const sample of board.watch({ intervalMs: 200 })) {
    samples.push(sample);
    samples.splice(0, samples.length - SAMPLES_MAX);
    draw();
  }
});

function draw(): void {
  const canvas = element<HTMLCanvasElement>("chart");
  const { width, height } = canvas;
  const pen = canvas.getContext("2d")!;
  pen.clearRect(0, 0, width, height);
  pen.beginPath();
  samples.forEach(({ busy }, index) => {
    pen.lineTo((index / (SAMPLES_MAX - 1)) * width, height - busy * height);
  });
  pen.strokeStyle = "#2a6fdb";
  pen.lineWidth = 2;
  pen.stroke();
  const last = samples.at(-1)!;
  const figures = element("figures");
  figures.textContent = `processors ${Math.round(last.busy * 100)} % busy · ${last.people} in the room · ${last.lines} lines`;
  figures.dataset["samples"] = `${Number(figures.dataset["samples"] ?? 0) + 1}`;
}

// The chat. What is said while there is no connection waits here.
const unsaid: { name: string; text: string }[] = [];
let wake = () => {};

async function* said() {
  for (;;) {
    for (let line = unsaid.shift(); line !== undefined; line = unsaid.shift()) {
      yield line;
    }
    await new Promise<void>((resolve) => {
      wake = resolve;
    });
  }
}

void forEver(async () => {
  for await (const line of board.join(said())) {
    show(line);
  }
});

element("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = element<HTMLInputElement>("text");
  unsaid.push({ name: element<HTMLInputElement>("name").value, text: text.value });
  text.value = "";
  wake();
});

function show({ name, text }: Line): void {
  const item = document.createElement("li");
  const who = document.createElement("b");
  who.textContent = name;
  item.append(who, text);
  element("lines").append(item);
  item.scrollIntoView();
}

