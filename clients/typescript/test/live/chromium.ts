// Has the conversation with a server in Chromium: node chromium.js http://HOST:PORT/, or https:// for wss://
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const origin = process.argv[2];
if (origin === undefined) {
  throw new Error("which server? chromium.js http://HOST:PORT/");
}
/** Browsers find packages by this. */
const PAGE = `<!doctype html>
<script type="importmap">
{
  "imports": {
    "@bufbuild/protobuf": "/node_modules/@bufbuild/protobuf/dist/esm/index.js",
    "@bufbuild/protobuf/codegenv2": "/node_modules/@bufbuild/protobuf/dist/esm/codegenv2/index.js",
    "@bufbuild/protobuf/wire": "/node_modules/@bufbuild/protobuf/dist/esm/wire/index.js",
    "@bufbuild/protobuf/wkt": "/node_modules/@bufbuild/protobuf/dist/esm/wkt/index.js"
  }
}
</script>`;

const root = new URL("../../../", import.meta.url);
const browser = await chromium.launch({
  executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium-headless-shell",
  // To Chromium, a page that a test makes up comes from nowhere, and may not call local servers.
  args: ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets"],
});
try {
  // Tests make their certificates themselves.
  const page = await browser.newPage({ ignoreHTTPSErrors: true });
  // The page and what it loads are ours; its WebSocket goes to the server, as one of the same origin.
  await page.route("**/*", (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname === "/") {
      return route.fulfill({ contentType: "text/html", body: PAGE });
    }
    return route.fulfill({ contentType: "text/javascript", body: readFileSync(new URL(`.${pathname}`, root)) });
  });
  page.on("console", (message) => console.error(message.text()));
  await page.goto(origin);
  for (const format of ["proto", "json"]) {
    await page.evaluate(
      `import("/build/test/live/conversation.js").then(({ converse }) => converse(location.href, "${format}"))`,
    );
  }
  console.log("all went well");
} finally {
  await browser.close();
}
