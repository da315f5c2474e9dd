/*
 * SHA-256 and HMAC-SHA-256 of our own, because relay and keeper link no library but libc.
 * With the processor's own instructions where it has them. Checked against libcrypto in the tests.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SHA256_HEX_SIZE (2 * SHA256_SIZE + 1)

struct sha256 {
	uint32_t state[8];
	uint64_t length; /* bytes taken so far */
	uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t len);
void sha256_final(struct sha256 *s, uint8_t out[SHA256_SIZE]);
void sha256_once(const void *data, size_t len, uint8_t out[SHA256_SIZE]);
/* In hexadecimal. */
void sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE]);

struct hmac {
	struct sha256 inner;
	uint8_t outer_pad[64];
};

void hmac_init(struct hmac *h, const void *key, size_t key_len);
void hmac_update(struct hmac *h, const void *data, size_t len);
void hmac_final(struct hmac *h, uint8_t out[SHA256_SIZE]); /* wipes h */

/* Takes the same time wherever the first difference is. */
bool bytes_equal_secret(const void *a, const void *b, size_t len);
