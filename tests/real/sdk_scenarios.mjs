// The official Node clients in many situations: node sdk_scenarios.mjs SDK-FOLDER [anthropic] [chat] [responses]
import { createRequire } from 'node:module'
import { createHash } from 'node:crypto'

const require = createRequire(process.argv[2] + '/')
const { default: Anthropic } = require('@anthropic-ai/sdk')
const { default: OpenAI } = require('openai')
const { ResponsesWS } = require('openai/resources/responses/ws')

// Node's own client gives a server 10 seconds to connect; it lies behind this symbol once it is loaded.
new Request('http://localhost/')
const behind = Symbol.for('undici.globalDispatcher.1'), Agent = globalThis[behind].constructor
globalThis[behind] = new Agent({ connect: { timeout: 300000 } })

const KEY = 'sk-planted-0123456789abcdef0123456789abcdef'
const IMAGE = Buffer.from(Array.from({ length: 10240 }, (_, n) => n % 256)).toString('base64')
const BIG = 'Was steht in diesem langen Text? 🦜 '.repeat(130000)
const PARAMETERS = { type: 'object', properties: { city: { type: 'string' } } }
const MODELS = ['text', 'tools', 'long', 'split', 'text@gzip', 'tools@br', 'long@gzip',
  'retry', 'error-400', 'error-401', 'late-error', 'cut', 'reset']
const found = {}
const digest = value => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16)

async function note(name, work) {
  try { found[name] = await work() } catch (error) { found[name] = ['failed', error?.constructor?.name, error?.status ?? null] }
}

async function all(stream) {
  const events = []
  for await (const event of stream) events.push(event)
  return [events.length, digest(events)]
}

const sdk = { apiKey: KEY, timeout: 300000 }
const apis = {
  anthropic: {
    client: new Anthropic(sdk),
    asked: (model, content) => ({ model, max_tokens: 100, messages: [{ role: 'user', content }],
      tools: [{ name: 'get_weather', input_schema: PARAMETERS }] }),
    create: (client, body, options) => client.messages.create(body, options),
    image: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: IMAGE } }],
  },
  chat: {
    client: new OpenAI(sdk),
    asked: (model, content) => ({ model, messages: [{ role: 'user', content }],
      tools: [{ type: 'function', function: { name: 'get_weather', parameters: PARAMETERS } }] }),
    create: (client, body, options) => client.chat.completions.create(body, options),
    image: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${IMAGE}` } }],
  },
  responses: {
    client: new OpenAI(sdk),
    asked: (model, content) => ({ model, input: [{ role: 'user', content }],
      tools: [{ type: 'function', name: 'get_weather', parameters: PARAMETERS, strict: false }] }),
    create: (client, body, options) => client.responses.create(body, options),
    image: [{ type: 'input_image', detail: 'auto', image_url: `data:image/png;base64,${IMAGE}` }],
  },
}

async function cancelled(api) {
  const control = new AbortController()
  const stream = await api.create(api.client, { ...api.asked('slow', 'Go.'), stream: true }, { signal: control.signal })
  let count = 0
  for await (const _ of stream) if (++count === 5) break
  control.abort()
  return count
}

function bySocket(api, models) {
  return new Promise((resolve, reject) => {
    const told = [], left = [...models]
    let events = []
    const socket = new ResponsesWS(api.client)
    const next = () => {
      if (!left.length) return socket.close()
      events = []
      socket.send({ type: 'response.create', ...api.asked(left.shift(), 'Grüße über den Draht 🦜') })
    }
    socket.on('event', event => {
      events.push(event)
      if (event.type === 'response.completed') { told.push([events.length, digest(events)]); next() }
    })
    socket.on('error', error => reject(error))
    socket.on('close', () => resolve(told))
    next()
  })
}

for (const [name, api] of Object.entries(apis)) {
  if (!process.argv.slice(3).includes(name)) continue
  for (const model of MODELS) {
    await note(`${name} ${model}`, async () => digest(await api.create(api.client, api.asked(model, 'Grüße 🦜'))))
    await note(`${name} ${model} stream`, async () =>
      all(await api.create(api.client, { ...api.asked(model, 'Grüße 🦜'), stream: true })))
  }
  await note(`${name} image`, async () => all(await api.create(api.client, { ...api.asked('text', api.image), stream: true })))
  await note(`${name} 5 MB`, async () => digest(await api.create(api.client, api.asked('text', BIG))))
  await note(`${name} timeout`, () => api.create(api.client, api.asked('hang', 'Still?'), { timeout: 500, maxRetries: 0 }))
  await note(`${name} cancelled`, () => cancelled(api))
  await note(`${name} parallel`, () => Promise.all(Array.from({ length: 50 }, async (_, number) =>
    digest(await api.create(api.client, api.asked('tools', `Nummer ${number}`))))))
  if (name === 'responses') await note('responses socket', () => bySocket(api, ['text', 'tools', 'long']))
}
process.stdout.write(JSON.stringify(found, null, 1), () => process.exit(0))
