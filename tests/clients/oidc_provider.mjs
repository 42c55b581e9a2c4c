// A certified authorization server on a free port of loopback; prints its issuer, and at its end, as JSON, how many
// refresh tokens were used and which requests for tokens it refused. Arguments: its package, the resource, and perhaps a
// client that it knows, as JSON.
import http from "node:http";
import { pathToFileURL } from "node:url";

const [home, resource, client] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(`${home}/lib/index.js`).href);

const server = http.createServer((request, response) => handle(request, response));
let handle = (_, response) => response.end();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    scopes: ["openid", "offline_access", "tools:read"],
    clients: client ? [JSON.parse(client)] : [],
    pkce: { required: () => true },
    rotateRefreshToken: true,
    issueRefreshToken: async () => true,
    cookies: { keys: ["only a test"] },
    clientDefaults: { grant_types: ["authorization_code", "refresh_token"] },
    ttl: { AccessToken: 10, Grant: 600, Session: 600, Interaction: 600, RefreshToken: 600 },
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, indicator) => {
          if (indicator !== resource) throw new Error("unknown resource");
          const jwt = { sign: { alg: "RS256" } };
          return { scope: "tools:read", audience: resource, accessTokenFormat: "jwt", accessTokenTTL: 4, jwt };
        },
      },
    },
  });
  const seen = { used: 0, refused: [] };
  provider.on("refresh_token.consumed", () => (seen.used += 1));
  provider.on("grant.error", (_, error) => seen.refused.push(error.error_detail ?? error.message));
  process.on("SIGTERM", () => process.stdout.write(`${JSON.stringify(seen)}\n`, () => process.exit()));
  handle = provider.callback();
  process.stdout.write(`${issuer}\n`);
});
