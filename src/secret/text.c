/*
 * A value of a secret. The secure heap of OpenSSL is small and locked; a value that does not fit in
 * it is in ordinary memory. Both are zeroed when they are freed.
 */
#include "secret/secret.h"

#include <assert.h>
#include <ctype.h>
#include <openssl/crypto.h>
#include <string.h>

#define HEAP_BYTES (1u << 20)
#define HEAP_SMALLEST 32

enum secret_heap secret_heap_init(void)
{
	switch (CRYPTO_secure_malloc_init(HEAP_BYTES, HEAP_SMALLEST)) {
	case 1:
		return SECRET_HEAP_LOCKED;
	case 2:
		return SECRET_HEAP_UNLOCKED;
	default:
		return SECRET_HEAP_NONE;
	}
}

void secret_text_clear(struct secret_text *text)
{
	/* Also right for memory that came from OPENSSL_malloc. */
	OPENSSL_secure_clear_free(text->bytes_, text->len_ + 1);
	*text = (struct secret_text){ 0 };
}

unsigned char *secret_text_reserve(struct secret_text *text, size_t len)
{
	secret_text_clear(text);
	text->bytes_ = OPENSSL_secure_malloc(len + 1);
	if (!text->bytes_)
		text->bytes_ = OPENSSL_malloc(len + 1);
	if (!text->bytes_)
		abort(); /* as xmalloc */
	text->len_ = len;
	text->bytes_[len] = '\0';
	return text->bytes_;
}

void secret_text_set(struct secret_text *text, const void *bytes, size_t len)
{
	struct secret_text fresh = { 0 };

	memcpy(secret_text_reserve(&fresh, len), len ? bytes : "", len);
	secret_text_move(text, &fresh);
}

void secret_text_cut(struct secret_text *text, size_t len)
{
	struct secret_text shorter = { 0 };

	assert(len <= text->len_);
	if (len == text->len_)
		return;
	secret_text_set(&shorter, text->bytes_, len);
	secret_text_move(text, &shorter);
}

void secret_text_copy(struct secret_text *to, const struct secret_text *from)
{
	if (to != from)
		secret_text_set(to, from->bytes_, from->len_);
}

void secret_text_move(struct secret_text *to, struct secret_text *from)
{
	if (to == from)
		return;
	secret_text_clear(to);
	*to = *from;
	*from = (struct secret_text){ 0 };
}

void secret_text_trim(struct secret_text *text)
{
	size_t begin = 0, end = text->len_;
	struct secret_text inner = { 0 };

	while (begin < end && isspace(text->bytes_[begin]))
		begin++;
	while (end > begin && isspace(text->bytes_[end - 1]))
		end--;
	if (end - begin == text->len_)
		return;
	secret_text_set(&inner, text->bytes_ + begin, end - begin);
	secret_text_move(text, &inner);
}

size_t secret_text_len(const struct secret_text *text)
{
	return text->len_;
}

bool secret_text_equal(const struct secret_text *a, const struct secret_text *b)
{
	return a->len_ == b->len_ &&
	       (a->len_ == 0 || CRYPTO_memcmp(a->bytes_, b->bytes_, a->len_) == 0);
}

const char *secret_text_reveal(const struct secret_text *text, size_t *len)
{
	if (len)
		*len = text->len_;
	return text->bytes_ ? (const char *)text->bytes_ : "";
}
