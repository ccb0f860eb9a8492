// Serves this folder: node serve.mjs [port]. The page loads the client's packages from node_modules as they are;
// some of them import files without the ending .js, which a browser does not add, so this server does.

import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize, sep } from "node:path";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL(".", import.meta.url));
const port = Number(process.argv[2] ?? 3000);
const types = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript" };

function found(path) {
  const asked = normalize(join(folder, decodeURIComponent(path)));
  if (!asked.startsWith(folder) || asked.split(sep).some((part) => part.startsWith("."))) return undefined;
  const tries = [asked, `${asked}.js`, join(asked, "index.html"), join(asked, "index.js")];
  return tries.find((file) => statSync(file, { throwIfNoEntry: false })?.isFile());
}

const server = createServer((request, response) => {
  const file = found(new URL(request.url, "http://localhost").pathname);
  const type = file && types[extname(file)];
  if (!type) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "Content-Type": `${type}; charset=utf-8`, "Cache-Control": "no-cache" });
  createReadStream(file).pipe(response);
});

server.on("error", (error) => {
  console.error(`Port ${port} cannot be had (${error.code}). Name another, here and to Outlast: npm start -- 3001`);
  process.exit(1);
});

server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
