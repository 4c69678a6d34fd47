// Runs a step of the WebAssembly target on two threads: node step.js MODULE MEMORY OUT BASE POOL ARGUMENTS STACK0 STACK1
// MEMORY is placed at BASE of a shared memory, which is written to OUT with the step's result in its first four bytes.
const fs = require("fs");
const { Worker, isMainThread, workerData } = require("worker_threads");

function start(code, memory, stack) {
  const pointer = new WebAssembly.Global({ value: "i32", mutable: true }, stack);
  const imports = { env: { __linear_memory: memory, __stack_pointer: pointer } };
  return new WebAssembly.Instance(new WebAssembly.Module(code), imports).exports;
}

if (isMainThread) {
  const [module, image, out, ...numbers] = process.argv.slice(2);
  const [base, pool, args, stack0, stack1] = numbers.map(Number);
  const bytes = fs.readFileSync(image);
  const pages = Math.ceil((base + bytes.length) / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536, shared: true });
  new Uint8Array(memory.buffer).set(bytes, base);
  const code = fs.readFileSync(module);
  const worker = new Worker(__filename, { workerData: { code, memory, pool, stack: stack1 } });
  const { run, close } = start(code, memory, stack0);
  worker.on("online", () => {
    const result = run(pool, args);
    close(pool);
    const after = Buffer.from(new Uint8Array(memory.buffer, base, bytes.length));
    after.writeInt32LE(result);
    fs.writeFileSync(out, after);
  });
} else {
  start(workerData.code, workerData.memory, workerData.stack).worker(workerData.pool, 1);
}
