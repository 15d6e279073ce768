// sandbox-runtime as a library, kept between calls and timed here: its command line starts Node every time.
// Arguments: its index.js, then the command. A byte on standard input is one call, answered with its seconds.
import { spawn } from 'node:child_process';

const [library, ...argv] = process.argv.slice(2);
const { SandboxManager } = await import(library);
await SandboxManager.initialize({
  network: { allowedDomains: [], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
});
const input = JSON.stringify({ text: 'x'.repeat(960), numbers: [1, 2.5, null] });
const quoted = argv.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');

async function call() {
  const command = await SandboxManager.wrapWithSandbox(quoted);
  const [code, output] = await new Promise((resolve) => {
    const child = spawn(command, { shell: true, stdio: ['pipe', 'pipe', 'ignore'] });
    let text = '';
    child.stdout.on('data', (data) => (text += data));
    child.on('close', (status) => resolve([status, text]));
    child.stdin.end(input);
  });
  if (code !== 0 || JSON.parse(output).text.length !== 960) throw new Error(`ended with ${code}: ${output}`);
}

for await (const chunk of process.stdin) {
  for (let left = chunk.length; left > 0; left--) {
    const started = process.hrtime.bigint();
    await call();
    const answer = Buffer.alloc(8);
    answer.writeDoubleLE(Number(process.hrtime.bigint() - started) / 1e9);
    process.stdout.write(answer);
  }
}
await SandboxManager.reset();
process.exit(0);
