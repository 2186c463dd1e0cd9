// A server with two tools and a count of the calls, of the SDK that the argument names. It prints its port.
import { createServer } from 'node:http';
import { z } from 'zod';

const calls = {};
const tools = (server, inputSchema) => {
  for (const name of ['search', 'other']) {
    server.registerTool(name, { description: name, inputSchema }, async () => {
      calls[name] = (calls[name] ?? 0) + 1;
      return { content: [{ type: 'text', text: `${name} is done` }] };
    });
  }
  return server;
};
const fields = { text: z.string().optional() };
const info = { name: 'tools', version: '1' };

let answer;
if (process.argv[2] === 'v1') {
  const { McpServer } = await import('@modelcontextprotocol/sdk/server/mcp.js');
  const { StreamableHTTPServerTransport } = await import('@modelcontextprotocol/sdk/server/streamableHttp.js');
  answer = async (request, response) => {
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on('close', () => transport.close());
    await tools(new McpServer(info), fields).connect(transport);
    await transport.handleRequest(request, response);
  };
} else {
  const { McpServer, createMcpHandler } = await import('@modelcontextprotocol/server');
  const handler = createMcpHandler(() => tools(new McpServer(info), z.object(fields)), { responseMode: 'sse' });
  answer = async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
    const given = new Request(`http://${request.headers.host}${request.url}`,
      { method: request.method, headers: Object.entries(request.headers).map(([k, v]) => [k, String(v)]), body });
    const got = await handler.fetch(given);
    response.writeHead(got.status, Object.fromEntries(got.headers));
    if (got.body) for await (const part of got.body) response.write(part);
    response.end();
  };
}

const server = createServer((request, response) => {
  if (request.url === '/calls') {
    response.end(JSON.stringify(calls));
    return;
  }
  answer(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit(0)).resume();
