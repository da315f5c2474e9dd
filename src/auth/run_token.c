#include "auth/run_token.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/text.h"

#define HEADER "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define ISSUER "berth"
#define AUDIENCE "berth-api"
#define DIGEST_BYTES 32
#define TOKEN_MAX 4096

/* ---- the key ---- */

static int make_key(int dirfd, const char *name, struct error *err)
{
	unsigned char bytes[RUN_TOKEN_KEY_BYTES];
	char hex[2 * RUN_TOKEN_KEY_BYTES + 2];

	random_bytes(bytes, sizeof(bytes));
	hex_encode(hex, bytes, sizeof(bytes));
	hex[2 * RUN_TOKEN_KEY_BYTES] = '\n';

	int r = file_replace(dirfd, name, hex, sizeof(hex) - 1, 0600, err);

	wipe(bytes, sizeof(bytes));
	wipe(hex, sizeof(hex));
	return r;
}

static int read_key(int dirfd, const char *name, struct run_token_key *key, struct error *err)
{
	char hex[2 * RUN_TOKEN_KEY_BYTES + 2] = { 0 };
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read the key of run tokens %s", name);
	if (!S_ISREG(st.st_mode) || st.st_mode & 077)
		return error_set(err, ERR_FORBIDDEN,
				 "the key of run tokens %s may be read by others; chmod 600 it",
				 name);

	ssize_t n = pread(fd, hex, sizeof(hex) - 1, 0);

	if (n > 0 && hex[n - 1] == '\n')
		hex[n - 1] = '\0';

	bool ok = n > 0 && hex_decode(key->bytes, hex, sizeof(key->bytes));

	wipe(hex, sizeof(hex));
	if (!ok)
		return error_set(err, ERR_VALIDATION,
				 "the key of run tokens %s is not %d bytes in hex; remove it to "
				 "have a new one made",
				 name, RUN_TOKEN_KEY_BYTES);
	return 0;
}

int run_token_key_load(int dirfd, const char *name, struct run_token_key *key, struct error *err)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT &&
	    make_key(dirfd, name, err) < 0)
		return -1;
	return read_key(dirfd, name, key, err);
}

/* ---- base64url without padding ---- */

static void put_encoded(struct buf *out, const void *data, size_t len)
{
	_cleanup_buf_ struct buf plain = { 0 };

	base64_encode(&plain, data, len);
	for (size_t i = 0; i < plain.len; i++) {
		char c = plain.data[i];

		if (c != '=')
			buf_putc(out, c == '+' ? '-' : c == '/' ? '_' : c);
	}
}

static bool decode(struct buf *out, const char *text, size_t len)
{
	_cleanup_buf_ struct buf plain = { 0 };

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '+' || text[i] == '/' || text[i] == '=')
			return false;
		buf_putc(&plain, text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i]);
	}
	while (plain.len % 4)
		buf_putc(&plain, '=');
	return base64_decode(out, plain.data ? plain.data : "", plain.len);
}

static void sign(const struct run_token_key *key, const char *data, size_t len,
		 unsigned char digest[DIGEST_BYTES])
{
	unsigned int digest_len = 0;

	if (!HMAC(EVP_sha256(), key->bytes, sizeof(key->bytes), (const unsigned char *)data, len,
		  digest, &digest_len) ||
	    digest_len != DIGEST_BYTES)
		abort();
}

char *run_token_make(const struct run_token_key *key, const struct run_claims *claims)
{
	_cleanup_json_ json_t *body = json_object();
	_cleanup_buf_ struct buf out = { 0 };
	unsigned char digest[DIGEST_BYTES];

	json_put_str(body, "sub", claims->agent_id);
	json_put_str(body, "company_id", claims->company_id);
	json_put_str(body, "adapter_type", claims->adapter_type);
	json_put_str(body, "run_id", claims->run_id);
	json_put_int(body, "iat", claims->issued_at / 1000);
	json_put_int(body, "exp", claims->expires_at / 1000);
	json_put_str(body, "iss", ISSUER);
	json_put_str(body, "aud", AUDIENCE);

	_cleanup_free_ char *text = json_text(body);

	put_encoded(&out, HEADER, strlen(HEADER));
	buf_putc(&out, '.');
	put_encoded(&out, text, strlen(text));
	sign(key, out.data, out.len, digest);
	buf_putc(&out, '.');
	put_encoded(&out, digest, sizeof(digest));
	return buf_steal(&out);
}

static int refuse(struct error *err)
{
	return error_set(err, ERR_UNAUTHENTICATED, "the run token is not valid or has expired");
}

static bool check_header(const char *text, size_t len)
{
	_cleanup_buf_ struct buf raw = { 0 };
	_cleanup_json_ json_t *header = NULL;

	if (!decode(&raw, text, len))
		return false;
	header = json_parse(buf_str(&raw), raw.len, NULL);
	return json_is_object(header) && str_equal(json_str(header, "alg"), "HS256") &&
	       str_equal(json_str(header, "typ"), "JWT");
}

static bool take_id(const json_t *body, const char *key, char out[ID_SIZE])
{
	const char *id = json_str(body, key);

	if (!id_is_valid(id))
		return false;
	id_copy(out, id);
	return true;
}

static bool read_claims(const char *text, size_t len, int64_t now, struct run_claims *claims)
{
	_cleanup_buf_ struct buf raw = { 0 };
	_cleanup_json_ json_t *body = NULL;

	if (!decode(&raw, text, len))
		return false;
	body = json_parse(buf_str(&raw), raw.len, NULL);
	if (!json_is_object(body) || !take_id(body, "sub", claims->agent_id) ||
	    !take_id(body, "company_id", claims->company_id) ||
	    !take_id(body, "run_id", claims->run_id) || !json_str(body, "adapter_type") ||
	    !str_equal(json_str(body, "iss"), ISSUER) ||
	    !str_equal(json_str(body, "aud"), AUDIENCE))
		return false;
	snprintf(claims->adapter_type, sizeof(claims->adapter_type), "%s",
		 json_str(body, "adapter_type"));
	claims->issued_at = json_int(body, "iat", 0) * 1000;
	claims->expires_at = json_int(body, "exp", 0) * 1000;
	return claims->issued_at > 0 && claims->expires_at >= now;
}

bool run_token_is_shaped(const char *text)
{
	const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;

	return second && !strchr(second + 1, '.');
}

int run_token_verify(const struct run_token_key *key, const char *text, int64_t now,
		     struct run_claims *claims, struct error *err)
{
	_cleanup_buf_ struct buf signature = { 0 };
	unsigned char digest[DIGEST_BYTES];

	*claims = (struct run_claims){ 0 };
	if (strlen(text) > TOKEN_MAX || !run_token_is_shaped(text))
		return refuse(err);

	const char *body = strchr(text, '.') + 1, *tail = strchr(body, '.') + 1;

	sign(key, text, (size_t)(tail - 1 - text), digest);
	if (!decode(&signature, tail, strlen(tail)) || signature.len != sizeof(digest) ||
	    CRYPTO_memcmp(signature.data, digest, sizeof(digest)) != 0 ||
	    !check_header(text, (size_t)(body - 1 - text)) ||
	    !read_claims(body, (size_t)(tail - 1 - body), now, claims))
		return refuse(err);
	return 0;
}
