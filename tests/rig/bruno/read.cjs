// Reads {path: text} as JSON from its input, and writes {path: what Bruno's own parser makes of it}.
const { bruToEnvJsonV2, bruToJsonV2, collectionBruToJson } = require("@usebruno/lang");
const { readFileSync } = require("node:fs");

const readerOf = (path) => {
  if (path.startsWith("environments/")) return bruToEnvJsonV2;
  return /(^|\/)(collection|folder)\.bru$/.test(path) ? collectionBruToJson : bruToJsonV2;
};
const files = Object.entries(JSON.parse(readFileSync(0, "utf8")));
process.stdout.write(JSON.stringify(Object.fromEntries(files.map(([path, text]) => [path, readerOf(path)(text)]))));
