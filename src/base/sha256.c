#include "base/sha256.h"

#include <stdatomic.h>
#include <string.h>
#include "base/mem.h"
#include "base/sha256_blocks.h"
#include "base/text.h"

const uint32_t sha256_constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

static uint32_t rotate(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static void put_be32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static void compress(uint32_t state[8], const uint8_t block[SHA256_BLOCK])
{
	uint32_t w[64], v[8];

	for (size_t i = 0; i < 16; i++)
		w[i] = get_be32(block + 4 * i);
	for (size_t i = 16; i < 64; i++) {
		uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
		uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

		w[i] = w[i - 16] + s0 + w[i - 7] + s1;
	}
	memcpy(v, state, sizeof(v));
	/* The eight change names at every step, not places: moving them takes longer than the step.
	 */
	for (size_t i = 0; i < 64; i++) {
		uint32_t a = v[-i & 7], b = v[(1 - i) & 7], c = v[(2 - i) & 7];
		uint32_t e = v[(4 - i) & 7], f = v[(5 - i) & 7], g = v[(6 - i) & 7];
		uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
		uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
		uint32_t t1 =
			v[(7 - i) & 7] + s1 + ((e & f) ^ (~e & g)) + sha256_constants[i] + w[i];

		v[(3 - i) & 7] += t1;
		v[(7 - i) & 7] = t1 + s0 + ((a & b) ^ (a & c) ^ (b & c));
	}
	for (size_t i = 0; i < 8; i++)
		state[i] += v[i];
}

void sha256_blocks_portable(uint32_t state[8], const uint8_t *data, size_t count)
{
	for (; count > 0; count--, data += SHA256_BLOCK)
		compress(state, data);
}

/*
 * Asking the processor traps in virtual machines and takes longer than a short message, so it is
 * asked when the first long one comes, and once.
 */
#define WORTH_ASKING 64
enum { UNASKED, PORTABLE, FAST };

static void blocks(uint32_t state[8], const uint8_t *data, size_t count)
{
	static atomic_int known = UNASKED;
	int way = atomic_load_explicit(&known, memory_order_relaxed);

	if (way == UNASKED && count >= WORTH_ASKING) {
		way = sha256_x86_present() ? FAST : PORTABLE;
		atomic_store_explicit(&known, way, memory_order_relaxed);
	}
	if (way == FAST)
		sha256_blocks_x86(state, data, count);
	else
		sha256_blocks_portable(state, data, count);
}

void sha256_init(struct sha256 *s)
{
	static const uint32_t start[8] = {
		0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
		0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
	};

	memcpy(s->state, start, sizeof(start));
	s->length = 0;
}

void sha256_update(struct sha256 *s, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t have = s->length % 64;

	s->length += len;
	if (have > 0) {
		size_t take = MIN_OF(len, 64 - have);

		memcpy(s->block + have, p, take);
		p += take;
		len -= take;
		if (have + take < 64)
			return;
		blocks(s->state, s->block, 1);
	}
	if (len >= SHA256_BLOCK) {
		blocks(s->state, p, len / SHA256_BLOCK);
		p += len - len % SHA256_BLOCK;
		len %= SHA256_BLOCK;
	}
	if (len > 0)
		memcpy(s->block, p, len);
}

void sha256_final(struct sha256 *s, uint8_t out[SHA256_SIZE])
{
	static const uint8_t padding[64] = { 0x80 };
	uint64_t bits = s->length * 8;
	size_t have = s->length % 64;
	uint8_t tail[8];

	sha256_update(s, padding, have < 56 ? 56 - have : 120 - have);
	put_be32(tail, (uint32_t)(bits >> 32));
	put_be32(tail + 4, (uint32_t)bits);
	sha256_update(s, tail, sizeof(tail));
	for (size_t i = 0; i < 8; i++)
		put_be32(out + 4 * i, s->state[i]);
	wipe(s, sizeof(*s));
}

void sha256_once(const void *data, size_t len, uint8_t out[SHA256_SIZE])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_update(&s, data, len);
	sha256_final(&s, out);
}

void sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE])
{
	uint8_t digest[SHA256_SIZE];

	sha256_once(data, len, digest);
	hex_encode(out, digest, sizeof(digest));
}

void hmac_init(struct hmac *h, const void *key, size_t key_len)
{
	uint8_t block[64] = { 0 };

	if (key_len > sizeof(block))
		sha256_once(key, key_len, block);
	else if (key_len > 0)
		memcpy(block, key, key_len);
	for (size_t i = 0; i < sizeof(block); i++) {
		h->outer_pad[i] = block[i] ^ 0x5c;
		block[i] ^= 0x36;
	}
	sha256_init(&h->inner);
	sha256_update(&h->inner, block, sizeof(block));
	wipe(block, sizeof(block));
}

void hmac_update(struct hmac *h, const void *data, size_t len)
{
	sha256_update(&h->inner, data, len);
}

void hmac_final(struct hmac *h, uint8_t out[SHA256_SIZE])
{
	uint8_t digest[SHA256_SIZE];

	sha256_final(&h->inner, digest);
	sha256_init(&h->inner);
	sha256_update(&h->inner, h->outer_pad, sizeof(h->outer_pad));
	sha256_update(&h->inner, digest, sizeof(digest));
	sha256_final(&h->inner, out);
	wipe(digest, sizeof(digest));
	wipe(h, sizeof(*h));
}

bool bytes_equal_secret(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = a, *y = b;
	uint8_t difference = 0;

	for (size_t i = 0; i < len; i++)
		difference = (uint8_t)(difference | (x[i] ^ y[i]));
	return difference == 0;
}
