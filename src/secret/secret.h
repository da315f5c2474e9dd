/*
 * Secrets of a company: given once, used where they are bound, never shown again.
 *
 * A value exists outside a vault only as `struct secret_text`: it cannot be formatted, logged or
 * put into JSON. It lives in OpenSSL's secure heap (locked, left out of core dumps, zeroed when
 * freed). `secret_text_reveal` is the only way to its bytes; scripts/lint names the files that may
 * call it.
 *
 * The rows of this room (secrets, secret_versions, secret_bindings, vaults, secret_access_events)
 * hold names, states and what vaults call material, never a value in plain text.
 */
#pragma once

#include "record/record.h"

#define SECRET_VALUE_MAX (64u << 10)

/* ---- a value (text.c) ---- */

/* Members are private to text.c. Zero-initialise; an empty one is `{ 0 }`. */
struct secret_text {
	unsigned char *bytes_;
	size_t len_;
};
/*
 * The secure heap, once, before other threads exist. Unlocked: the limit on locked memory is too
 * small, so values may reach the swap. None: values live in ordinary memory, zeroed all the same.
 */
enum secret_heap { SECRET_HEAP_NONE, SECRET_HEAP_LOCKED, SECRET_HEAP_UNLOCKED };
enum secret_heap secret_heap_init(void);
/* Copies the bytes; the caller wipes its own. What was there before is cleared. */
void secret_text_set(struct secret_text *text, const void *bytes, size_t len);
/* Room for `len` bytes that the caller fills at once, for readers of files and vaults. */
unsigned char *secret_text_reserve(struct secret_text *text, size_t len);
void secret_text_cut(struct secret_text *text, size_t len); /* to a smaller length */
void secret_text_copy(struct secret_text *to, const struct secret_text *from);
void secret_text_move(struct secret_text *to, struct secret_text *from);
void secret_text_trim(struct secret_text *text); /* white space around it goes */
size_t secret_text_len(const struct secret_text *text);
bool secret_text_equal(const struct secret_text *a,
		       const struct secret_text *b); /* constant time */
/* The bytes, with a NUL behind them that len does not count; never NULL. Borrowed. */
const char *secret_text_reveal(const struct secret_text *text, size_t *len);
void secret_text_clear(struct secret_text *text);
#define _cleanup_secret_ _cleanup_(secret_text_clear)

/* ---- the keys of this server and what they seal (key.c, seal.c) ---- */

struct seal;

/* What sealed bytes belong to. Bytes that were moved to another row do not open. */
struct seal_at {
	const char *column; /* "secret_versions.material" */
	const char *company_id, *id;
	int64_t version; /* 0 where there is none */
};
/*
 * {"scheme": "local_encrypted_v1", "key", "iv", "tag", "ciphertext"}; NULL with
 * ERR_SECRET_KEY_MISSING or ERR_SECRET_KEY_WRONG.
 */
json_t *seal_material(struct seal *seal, const struct seal_at *at, const struct secret_text *value,
		      struct error *err);
/* ERR_SECRET_CORRUPT when it does not open: truncated, edited, or of another row. */
int seal_open_material(struct seal *seal, const struct seal_at *at, const json_t *material,
		       struct secret_text *out, struct error *err);
/* Hex of an HMAC of the value, to compare values by; it never leaves the server. */
#define SEAL_HASH_SIZE 65
int seal_hash(struct seal *seal, const char *company_id, const void *bytes, size_t len,
	      char out[SEAL_HASH_SIZE], struct error *err);
