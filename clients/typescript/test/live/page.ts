// Uses the page of examples/browser as two people do: node page.js http://HOST:PORT/
import assert from "node:assert/strict";
import { chromium, type Page } from "playwright-core";

const url = process.argv[2];
assert(url, "which server? page.js http://HOST:PORT/");
const browser = await chromium.launch({
  executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium-headless-shell",
  args: ["--no-sandbox"],
});

async function open(page: Page): Promise<Page> {
  page.on("console", (message) => console.error(message.text()));
  page.on("pageerror", (error) => console.error(error.message));
  await page.goto(url!);
  // The chart lives.
  await page.waitForSelector("#figures[data-samples]", { state: "attached" });
  await page.waitForFunction(`Number(document.getElementById("figures").dataset.samples) >= 3`);
  assert.equal(await page.textContent("#state"), "ready");
  return page;
}

async function say(page: Page, name: string, text: string): Promise<void> {
  await page.fill("#name", name);
  await page.fill("#text", text);
  await page.click("button");
}

async function hears(page: Page, line: string): Promise<void> {
  await page.waitForFunction(`[...document.querySelectorAll("#lines li")].some((item) => item.textContent === ${JSON.stringify(line)})`);
}

try {
  const [ann, bob] = await Promise.all([open(await browser.newPage()), open(await browser.newPage())]);
  await ann.waitForFunction(`document.getElementById("figures").textContent.includes("2 in the room")`);
  await say(ann, "Ann", "hello ☺");
  await hears(ann, "Annhello ☺");
  await hears(bob, "Annhello ☺");
  await say(bob, "Bob", "<b>hi</b>");
  await hears(ann, "Bob<b>hi</b>");
  // A page that is closed is gone from the room.
  await bob.close();
  await ann.waitForFunction(`document.getElementById("figures").textContent.includes("1 in the room")`);

  // Without a connection a page says so, and with the next one it says what was said meanwhile.
  const cal = await browser.newPage();
  let isAway = false;
  let cut = async () => {};
  await cal.routeWebSocket(/.*/, async (link) => {
    if (isAway) {
      await link.close();
      return;
    }
    const server = link.connectToServer();
    cut = async () => {
      await Promise.all([link.close(), server.close()]);
    };
  });
  await open(cal);
  isAway = true;
  await cut();
  await cal.waitForFunction(`document.getElementById("state").textContent === "connecting"`);
  await ann.waitForFunction(`document.getElementById("figures").textContent.includes("1 in the room")`);
  await say(cal, "Cal", "back again");
  isAway = false;
  await hears(cal, "Calback again");
  await hears(ann, "Calback again");
  console.log("all went well");
} finally {
  await browser.close();
}
