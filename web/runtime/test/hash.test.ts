import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { Sha256, sha256Hex } from "../src/hash.js";

const reference = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

it("agrees with OpenSSL at every length around the block size", async () => {
  for (let length = 0; length <= 260; length++) {
    const bytes = Uint8Array.from({ length }, (_, i) => (i * 167 + length) % 256);
    expect(await sha256Hex(bytes, null)).toBe(reference(bytes));
  }
});

it("agrees with OpenSSL on megabytes and on views", async () => {
  const bytes = Uint8Array.from({ length: 3_000_001 }, (_, i) => (i * i) % 256);
  expect(await sha256Hex(bytes, null)).toBe(reference(bytes));
  expect(await sha256Hex(bytes.subarray(5, 1005), null)).toBe(reference(bytes.subarray(5, 1005)));
});

it("uses the platform's own where there is one", async () => {
  const bytes = new TextEncoder().encode("tinyweb");
  let used = 0;
  const native = { digest: (name: AlgorithmIdentifier, data: BufferSource) => (used++, crypto.subtle.digest(name, data)) };
  expect(await sha256Hex(bytes, native)).toBe(reference(bytes));
  expect(used).toBe(1);
});

it("takes bytes in pieces of any size", () => {
  for (const size of [1, 7, 63, 64, 65, 200]) {
    const bytes = Uint8Array.from({ length: 777 }, (_, i) => (i * size) % 251);
    const hash = new Sha256();
    for (let at = 0; at < bytes.length; at += size) hash.update(bytes.subarray(at, at + size));
    expect(hash.hex()).toBe(reference(bytes));
  }
});
