#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/evp.h>
#include "base/id.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/sha256_blocks.h"

#define LONGEST 20000

static void truth(const void *data, size_t len, uint8_t out[SHA256_SIZE])
{
	unsigned int n = 0;

	assert_true(EVP_Digest(data, len, out, &n, EVP_sha256(), NULL));
	assert_int_equal(n, SHA256_SIZE);
}

static size_t pick(unsigned *seed, size_t bound)
{
	return (size_t)rand_r(seed) % bound;
}

static void agrees_with_libcrypto_however_the_bytes_come(void **state)
{
	_cleanup_free_ uint8_t *data = xmalloc(LONGEST);
	unsigned seed = 1;

	(void)state;
	random_bytes(data, LONGEST);
	for (size_t round = 0; round < 1500; round++) {
		/* Every length around the block size, then any; from any alignment. */
		size_t offset = pick(&seed, 17);
		size_t len = round < 200 ? round : pick(&seed, LONGEST - 17);
		uint8_t want[SHA256_SIZE], got[SHA256_SIZE];
		struct sha256 s;

		truth(data + offset, len, want);
		sha256_init(&s);
		for (size_t at = 0; at < len;) {
			size_t most = pick(&seed, 3) ? pick(&seed, 200) : pick(&seed, LONGEST);
			size_t take = MIN_OF(len - at, most);

			sha256_update(&s, data + offset + at, take);
			at += take;
		}
		sha256_final(&s, got);
		assert_memory_equal(got, want, SHA256_SIZE);
		sha256_once(data + offset, len, got);
		assert_memory_equal(got, want, SHA256_SIZE);
	}
}

typedef void blocks_fn(uint32_t state[8], const uint8_t *data, size_t count);

/* The digest of a message that is padded here, so that nothing but the blocks is at work. */
static void digest_by(blocks_fn *fn, uint8_t *padded, size_t len, uint8_t out[SHA256_SIZE])
{
	uint32_t words[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
			      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
	size_t total = (len + 9 + 63) / 64 * 64;

	padded[len] = 0x80;
	memset(padded + len + 1, 0, total - len - 1);
	for (size_t i = 0; i < 8; i++)
		padded[total - 1 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
	fn(words, padded, total / 64);
	for (size_t i = 0; i < SHA256_SIZE; i++)
		out[i] = (uint8_t)(words[i / 4] >> 8 * (3 - i % 4));
}

static void check_blocks(blocks_fn *fn)
{
	_cleanup_free_ uint8_t *data = xmalloc(LONGEST + 128);
	unsigned seed = 2;

	for (size_t round = 0; round < 400; round++) {
		size_t len = round < 200 ? round : pick(&seed, LONGEST);
		uint8_t want[SHA256_SIZE], got[SHA256_SIZE];

		random_bytes(data, len);
		truth(data, len, want);
		digest_by(fn, data, len, got);
		assert_memory_equal(got, want, SHA256_SIZE);
	}
}

static void the_portable_way_agrees(void **state)
{
	(void)state;
	check_blocks(sha256_blocks_portable);
}

static void the_processors_way_agrees(void **state)
{
	(void)state;
	if (!sha256_x86_present())
		skip();
	check_blocks(sha256_blocks_x86);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_libcrypto_however_the_bytes_come),
		cmocka_unit_test(the_portable_way_agrees),
		cmocka_unit_test(the_processors_way_agrees),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
