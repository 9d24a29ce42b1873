// Cases of our own for E2B's released clients for Node against a running `fumehood serve`.
//
// usage: node cases.mjs URL KEY OTHER_KEY MODULES there|none     MODULES: a folder with `node_modules`; then whether there is a
// template for code. Prints one line for each case that failed, and at the end `N passed, N failed, N skipped`.

import assert from 'node:assert/strict'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'

const [url, key, other, modules, template] = process.argv.slice(2)
Object.assign(process.env, { E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_API_KEY: key })
const require = createRequire(path.join(path.resolve(modules), 'x.js'))
const e2b = require('e2b')
const { Sandbox, Template } = e2b
const CodeSandbox = require('@e2b/code-interpreter').Sandbox

class Skip extends Error {}

const cases = {
  async createInfoKill() {
    const box = await Sandbox.create({ timeoutMs: 120_000, metadata: { 'a b': 'c&d' } })
    const info = await box.getInfo()
    assert.equal(info.sandboxId, box.sandboxId)
    assert.deepEqual(info.metadata, { 'a b': 'c&d' })
    assert.equal(await box.isRunning(), true)
    assert.equal(await box.kill(), true)
    assert.equal(await Sandbox.kill(box.sandboxId), false)
    assert.equal(await box.isRunning(), false)
  },

  async aWrongKeyIsAnAuthenticationError() {
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), e2b.AuthenticationError)
  },

  async anotherKeyFindsNothing(box) {
    await assert.rejects(Sandbox.connect(box.sandboxId, { apiKey: other }), e2b.NotFoundError)
    const theirs = await Sandbox.list({ apiKey: other }).nextItems()
    assert.ok(theirs.every((one) => one.sandboxId !== box.sandboxId))
  },

  async whatCannotBeHeldIsRefused() {
    await assert.rejects(Sandbox.create({ network: { allowOut: ['example.com'] } }), /network\.allowOut/)
    await assert.rejects(Sandbox.create('none-such'), /templateID/)
  },

  async anUploadThatIsRefusedEarlyIsToldAsWhatItIs(box) {
    const many = Array.from({ length: 10 }, (_, n) => ({ path: `/etc/hostname/${n}`, data: 'x' }))
    for (let n = 0; n < 5; n++) {
      await assert.rejects(box.files.write(many), /hostname/)
      await assert.rejects(box.files.write('/etc/hostname/a', 'x'.repeat(3_000_000)), /hostname/)
    }
  },

  async aProgramSpeaksAndEnds(box) {
    const seen = []
    const done = await box.commands.run('echo out; echo err >&2; pwd; echo "$A"', {
      envs: { A: 'b c' },
      cwd: '/tmp',
      onStdout: (text) => seen.push(text),
    })
    assert.deepEqual([done.exitCode, done.stdout, done.stderr], [0, 'out\n/tmp\nb c\n', 'err\n'])
    assert.equal(seen.join(''), done.stdout)
    await assert.rejects(box.commands.run('exit 7'), (error) => {
      assert.ok(error instanceof e2b.CommandExitError)
      return error.exitCode === 7
    })
  },

  async aProgramIsStoppedAtItsDeadline(box) {
    await assert.rejects(box.commands.run('sleep 30', { timeoutMs: 500 }), e2b.TimeoutError)
  },

  async programsAreListedWrittenToAndKilled(box) {
    const handle = await box.commands.run('cat; sleep 60', { background: true, stdin: true })
    const listed = await box.commands.list()
    assert.ok(listed.some((one) => one.pid === handle.pid))
    await box.commands.sendStdin(handle.pid, 'typed\n')
    while (!handle.stdout.includes('typed')) await new Promise((later) => setTimeout(later, 50))
    assert.equal(await handle.kill(), true)
    await assert.rejects(handle.wait())
    assert.ok((await box.commands.list()).every((one) => one.pid !== handle.pid))
  },

  async filesAreWrittenReadListedMovedAndRemoved(box) {
    const bytes = Uint8Array.from({ length: 70_000 }, (_, at) => at % 256)
    await box.files.write('/tmp/node/a b.bin', bytes.buffer)
    assert.deepEqual(await box.files.read('/tmp/node/a b.bin', { format: 'bytes' }), bytes)
    await box.files.write([
      { path: '/tmp/node/é.txt', data: 'ü' },
      { path: '/tmp/node/two.txt', data: '2' },
    ])
    assert.equal(await box.files.read('/tmp/node/é.txt'), 'ü')
    const names = (await box.files.list('/tmp/node')).map((one) => one.name).sort()
    assert.deepEqual(names, ['a b.bin', 'two.txt', 'é.txt'].sort())
    assert.equal(await box.files.makeDir('/tmp/node/d'), true)
    await box.files.rename('/tmp/node/two.txt', '/tmp/node/d/three.txt')
    assert.equal(await box.files.exists('/tmp/node/two.txt'), false)
    assert.equal((await box.files.getInfo('/tmp/node/d/three.txt')).size, 1)
    await box.files.remove('/tmp/node')
    await assert.rejects(box.files.read('/tmp/node/é.txt'), e2b.NotFoundError)
  },

  async aFolderIsListedInDepthAndWatchedAsATree(box) {
    await box.files.makeDir('/tmp/tree/a/b')
    const events = []
    const handle = await box.files.watchDir('/tmp/tree', (event) => events.push(event.name), { recursive: true })
    await box.files.write('/tmp/tree/a/b/deep', 'x')
    for (let n = 0; n < 100 && !events.includes('a/b/deep'); n++) await new Promise((later) => setTimeout(later, 50))
    await handle.stop()
    assert.ok(events.includes('a/b/deep'), String(events))
    const paths = async (depth) => (await box.files.list('/tmp/tree', { depth })).map((one) => one.path)
    assert.deepEqual(await paths(1), ['/tmp/tree/a'])
    assert.deepEqual(await paths(3), ['/tmp/tree/a', '/tmp/tree/a/b', '/tmp/tree/a/b/deep'])
  },

  async inputIsClosed(box) {
    const handle = await box.commands.run('cat; echo over', { background: true, stdin: true })
    await box.commands.sendStdin(handle.pid, 'typed')
    await box.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'typedover\n')
  },

  async filesComeAndGoBySignedAddresses(box) {
    const form = new FormData()
    form.append('file', new Blob(['sent up']), 'up.txt')
    const sent = await fetch(await box.uploadUrl('/tmp/up.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form })
    assert.equal(sent.status, 200, await sent.text())
    assert.equal(await (await fetch(await box.downloadUrl('/tmp/up.txt'))).text(), 'sent up')
  },

  async theHostOfAPort(box) {
    assert.ok(box.getHost(8080).startsWith(`8080-${box.sandboxId}.`), box.getHost(8080))
  },

  async networksThatAreOpenCarryTraffic() {
    const apiKey = process.env.E2B_TEST_OUTSIDE
    if (!apiKey) throw new Skip('there is no openssl for the server outside')
    const denyOut = ['0.0.0.0/0']
    const box = await Sandbox.create('outside', { apiKey, network: { allowOut: ['carried.test'], denyOut } })
    try {
      const get = (host) => {
        const code = `import urllib.request; print(urllib.request.urlopen("http://${host}/", timeout=10).read().decode())`
        return box.commands.run(`python3 -c '${code}' 2>&1 || true`).then((done) => done.stdout)
      }
      assert.equal(JSON.parse(await get('carried.test')).host, 'carried.test')
      assert.match(await get('other.test'), /Error/)
      await box.updateNetwork({ allowOut: ['other.test'], denyOut })
      assert.equal(JSON.parse(await get('other.test')).host, 'other.test')
      assert.match(await get('carried.test'), /Error/)
    } finally {
      await box.kill()
    }
  },

  async aFolderIsWatched(box) {
    await box.files.makeDir('/tmp/watched')
    const events = []
    const handle = await box.files.watchDir('/tmp/watched', (event) => events.push(`${event.type} ${event.name}`))
    await box.files.write('/tmp/watched/new.txt', 'x')
    await box.files.write('/tmp/watched/new.txt', 'y')
    for (let n = 0; n < 100 && events.length < 4; n++) await new Promise((later) => setTimeout(later, 50))
    await handle.stop()
    assert.deepEqual(events, ['create new.txt', 'chmod new.txt', 'write new.txt', 'write new.txt'])
  },

  async aTerminalIsOne(box) {
    let said = ''
    const pty = await box.pty.create({ cols: 90, rows: 25, onData: (data) => (said += new TextDecoder().decode(data)) })
    const type = (text) => box.pty.sendInput(pty.pid, new TextEncoder().encode(text))
    await type('stty size; read line; stty size; exit\n')
    for (let n = 0; n < 100 && !said.includes('25 90'); n++) await new Promise((later) => setTimeout(later, 50))
    await box.pty.resize(pty.pid, { cols: 111, rows: 44 })
    await type('\n')
    await pty.wait()
    assert.ok(said.includes('25 90') && said.includes('44 111'), said)
  },

  async aSandboxIsPausedAndGoesOn() {
    const box = await Sandbox.create({ timeoutMs: 120_000 })
    try {
      await box.files.write('/tmp/kept', 'k')
      let paused
      try {
        paused = await box.pause()
      } catch (error) {
        if (/freez/.test(String(error))) throw new Skip('nothing can be frozen here')
        throw error
      }
      assert.ok(paused)
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 60_000 })
      assert.equal(await again.files.read('/tmp/kept'), 'k')
    } finally {
      await Sandbox.kill(box.sandboxId)
    }
  },

  async aTemplateIsBuiltAndSandboxesBeginAsIt() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'fumehood-'))
    try {
      fs.writeFileSync(path.join(folder, 'app.txt'), 'from app')
      const name = `node-cases-${process.pid}`
      const steps = Template({ fileContextPath: folder })
        .fromTemplate('base')
        .copy('app.txt', 'app.txt')
        .setEnvs({ TEAM: 'research' })
        .runCmd('echo "$TEAM $(cat app.txt)" > said')
      const said = []
      const done = await Template.build(steps, name, { onBuildLogs: (entry) => said.push(String(entry.message)) })
      assert.ok(said.some((line) => line.includes('RUN echo')), said.join('\n'))
      const box = await Sandbox.create(name, { timeoutMs: 60_000 })
      try {
        assert.equal((await box.commands.run('cat said; echo $TEAM')).stdout, 'research from app\nresearch\n')
        assert.equal((await box.getInfo()).templateId, done.templateId)
      } finally {
        await box.kill()
      }
      // Steps of before are taken, unless they are not to be.
      const again = async (options) => {
        const lines = []
        await Template.build(steps, name, { ...options, onBuildLogs: (entry) => lines.push(String(entry.message)) })
        return lines.filter((line) => line.startsWith('cached: ')).length
      }
      assert.equal(await again({}), 3)
      assert.equal(await again({ skipCache: true }), 0)
      await assert.rejects(Sandbox.create(name, { apiKey: other }), /there is no template/)
      const fails = Template().fromTemplate('base').runCmd('echo because of this; exit 4')
      await assert.rejects(Template.build(fails, `${name}-fails`), /because of this/)
    } finally {
      fs.rmSync(folder, { recursive: true })
    }
  },

  async codeRunsAndKeepsItsState() {
    if (template === 'none') throw new Skip('the template code-interpreter-v1 cannot be built here')
    const box = await CodeSandbox.create({ timeoutMs: 120_000 })
    try {
      await box.runCode('x = 6')
      const done = await box.runCode('print(x * 7)\nx * 7')
      assert.equal(done.text, '42')
      assert.deepEqual(done.logs.stdout, ['42\n'])
      assert.equal((await box.runCode('1 / 0')).error.name, 'ZeroDivisionError')
    } finally {
      await box.kill()
    }
  },
}

const counts = { passed: 0, failed: 0, skipped: 0 }
const shared = await Sandbox.create({ timeoutMs: 600_000 })
for (const [name, run] of Object.entries(cases)) {
  try {
    await run(shared)
    counts.passed++
  } catch (error) {
    if (error instanceof Skip) {
      counts.skipped++
      console.log(`skip: ${name}: ${error.message}`)
    } else {
      counts.failed++
      console.log(`failed: ${name}\n${error.stack ?? error}`)
    }
  }
}
await shared.kill()
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`)
process.exit(counts.failed === 0 ? 0 : 1)
