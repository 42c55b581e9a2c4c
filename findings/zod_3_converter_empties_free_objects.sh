#!/usr/bin/env bash
# zod-from-json-schema 0.0.5 (the one for zod 3): a schema of a free-form object becomes one that empties what it is given.
#
# JSON Schema allows an object every member that a schema does not speak of, and `additionalProperties: true` says so aloud.
# The conversion of `{"type": "object"}`, with or without that word, parses {"message": "hi"} to {} and raises nothing; with
# `"properties": {}` beside it, which means the same, the member is kept. 0.5.6, the one for zod 4, keeps it in all of these
# cases. @voltagent/core 2.10.0 converts the input schemas of MCP tools by the former where its user has zod 3.
# Source: https://json-schema.org/draft/2020-12/json-schema-core#section-10.3.2.3
#
# Seen: `{}` three times and `{"message":"hi"}` last with 0.0.5, and `{"message":"hi"}` four times with 0.5.6.
# Needs node 20 or newer, and npm. Talks to nobody, but for the installation.
set -euo pipefail
version=0.0.5
newer=0.5.6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-fund --no-audit --loglevel=error \
    "for-zod-3@npm:zod-from-json-schema@$version" "for-zod-4@npm:zod-from-json-schema@$newer" >&2 || exit 2

cat >"$work/try.mjs" <<'JS'
const schemas = [
  { type: "object" },
  { type: "object", additionalProperties: true },
  { type: "object", additionalProperties: {} },
  { type: "object", properties: {} },
];
for (const name of ["for-zod-3", "for-zod-4"]) {
  const { convertJsonSchemaToZod } = await import(name);
  for (const schema of schemas) {
    const parsed = convertJsonSchemaToZod(schema).parse({ message: "hi" });
    console.log(`${name}: ${JSON.stringify(schema)} makes ${JSON.stringify(parsed)}`);
  }
}
JS

seen=$(cd "$work" && node try.mjs) || exit 2
echo "zod-from-json-schema $version and $newer"
echo "$seen"
emptied=$(grep -c '^for-zod-3: .* makes {}$' <<<"$seen" || true)
kept=$(grep -c '^for-zod-3: .*"properties":{}} makes {"message":"hi"}$' <<<"$seen" || true)
newer_kept=$(grep -c '^for-zod-4: .* makes {"message":"hi"}$' <<<"$seen" || true)
[[ $emptied-$kept-$newer_kept == 3-1-4 ]] || { echo "This has changed." >&2; exit 1; }
