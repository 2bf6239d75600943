// An OpenID Connect issuer for tests. Usage: node issuer.mjs PORT KEY_IDS SEED
// KEY_IDS: names of its keys, with commas; the first one signs. The same name is the same key.
// Clients: NAME has the secret NAME-secret and the roles of its name's parts, as in reader+writer;
// tokens of a client whose name begins with "brief-" live for 4 s, of others for an hour.
import { createHash, createPrivateKey } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const [port, names, place] = process.argv.slice(2);
const keys = names.split(',').map((name) => {
  const file = `${place}/${createHash('sha256').update(name).digest('hex').slice(0, 16)}.pem`;
  if (!existsSync(file)) {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    writeFileSync(file, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 });
  }
  const key = createPrivateKey(readFileSync(file)).export({ format: 'jwk' });
  return { ...key, kid: name, alg: 'RS256', use: 'sig' };
});

const issuer = `http://127.0.0.1:${port}`;
const clients = ['reader', 'reader+writer', 'nobody', 'brief-reader'].map((name) => ({
  client_id: name,
  client_secret: `${name}-secret`,
  grant_types: ['client_credentials'],
  redirect_uris: [],
  response_types: [],
}));
const provider = new Provider(issuer, {
  clients,
  jwks: { keys },
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource, client) => ({
        scope: 'any',
        audience: resource,
        accessTokenTTL: client.clientId.startsWith('brief-') ? 4 : 3600,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  extraTokenClaims: (_, token) => ({
    realm: { roles: token.clientId.replace('brief-', '').split('+') },
  }),
});
provider.listen(Number(port), '127.0.0.1', () => console.log(`listening ${issuer}`));
