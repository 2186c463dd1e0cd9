// An agent in a loop: it lists the tools, and calls each tool that the arguments name, with the SDK that the first one
// names. It prints what it gets for each call.
const [version, url, ...tools] = process.argv.slice(2);
const info = { name: 'agent', version: '1' };
let client, transport;
if (version === 'v1') {
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  client = new Client(info);
  transport = new StreamableHTTPClientTransport(new URL(url));
} else {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  client = new Client(info, version === 'v2' ? { versionNegotiation: { mode: 'auto' } } : {});
  transport = new StreamableHTTPClientTransport(new URL(url));
}
await client.connect(transport);
const listed = (await client.listTools()).tools.map((tool) => tool.name).sort();
const results = [];
for (const name of tools) {
  try {
    const result = await client.callTool({ name, arguments: {} });
    results.push({ text: result.content[0].text, isError: result.isError ?? false, meta: result._meta });
  } catch (error) {
    results.push({ code: error.code, message: error.message, data: error.data });
  }
}
console.log(JSON.stringify({ listed, results, revision: transport.protocolVersion ?? client.getNegotiatedProtocolVersion?.() }));
await client.close();
process.exit(0);
