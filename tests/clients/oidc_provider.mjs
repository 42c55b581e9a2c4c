// A certified authorization server on a free port of loopback; prints its issuer, and at its end, as JSON, how many
// refresh tokens were used, how many tokens were traded, and which requests for tokens it refused. Arguments: its package,
// the resource, perhaps a client that it knows, as JSON, and perhaps another resource, whose tokens it trades for tokens
// of the first: the library leaves what a trade asks for to its host, and makes and signs the tokens.
import http from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [home, resource, client, door] = process.argv.slice(2);
const { Provider, errors } = await import(pathToFileURL(`${home}/lib/index.js`).href);
const { createRemoteJWKSet, jwtVerify } = createRequire(`${home}/lib/index.js`)("jose");
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";

const server = http.createServer((request, response) => handle(request, response));
let handle = (_, response) => response.end();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const describe = (_, indicator) => {
    if (![resource, door].includes(indicator)) throw new errors.InvalidTarget();
    const jwt = { sign: { alg: "RS256" } };
    return { scope: "tools:read", audience: indicator, accessTokenFormat: "jwt", jwt };
  };
  const lifetimes = { [resource]: door ? 40 : 10, [door]: 3600 };
  const lifetime = (_, token) => lifetimes[token.aud] ?? 10;
  const provider = new Provider(issuer, {
    scopes: ["openid", "offline_access", "tools:read"],
    clients: client ? [JSON.parse(client)] : [],
    pkce: { required: () => true },
    rotateRefreshToken: true,
    issueRefreshToken: async () => true,
    cookies: { keys: ["only a test"] },
    clientDefaults: { grant_types: ["authorization_code", "refresh_token"] },
    ttl: { AccessToken: lifetime, Grant: 600, Session: 600, Interaction: 600, RefreshToken: 600 },
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: describe,
      },
    },
  });
  const seen = { used: 0, traded: 0, refused: [] };
  const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
  const trade = async (ctx) => {
    const { audience, subject_token: subject } = ctx.oidc.params;
    const verified = await jwtVerify(subject, keys, { issuer, audience: door }).catch(() => null);
    if (verified === null) throw new errors.InvalidGrant("no token of the front door");
    const token = new provider.AccessToken({
      accountId: verified.payload.sub, client: ctx.oidc.client, gty: EXCHANGE, scope: "tools:read",
    });
    token.resourceServer = new provider.ResourceServer(audience, describe(ctx, audience));
    const access_token = await token.save();
    seen.traded += 1;
    const issued_token_type = "urn:ietf:params:oauth:token-type:access_token";
    ctx.body = { access_token, issued_token_type, token_type: "Bearer", expires_in: token.expiration };
  };
  if (door) {
    const asked = ["audience", "subject_token", "subject_token_type", "requested_token_type", "scope"];
    provider.registerGrantType(EXCHANGE, trade, asked);
  }
  provider.on("refresh_token.consumed", () => (seen.used += 1));
  provider.on("grant.error", (_, error) => seen.refused.push(error.error_detail ?? error.message));
  process.on("SIGTERM", () => process.stdout.write(`${JSON.stringify(seen)}\n`, () => process.exit()));
  handle = provider.callback();
  process.stdout.write(`${issuer}\n`);
});
