#include "auth/run_token.h"
#include "../base/tempdir.h"
#include "base/buf.h"
#include "base/text.h"

#define NOW ((int64_t)1700000000000)

static const struct run_token_key KEY = { { 1, 2, 3 } };

static struct run_claims claims_of(int64_t until)
{
	struct run_claims claims = { .adapter_type = "process",
				     .issued_at = NOW,
				     .expires_at = until };

	id_copy(claims.agent_id, "11111111-1111-4111-8111-111111111111");
	id_copy(claims.company_id, "22222222-2222-4222-8222-222222222222");
	id_copy(claims.run_id, "33333333-3333-4333-8333-333333333333");
	return claims;
}

static int verify(const char *text, int64_t now, struct run_claims *out)
{
	_cleanup_error_ struct error err = { 0 };
	int r = run_token_verify(&KEY, text, now, out, &err);

	if (r < 0)
		assert_int_equal(err.code, ERR_UNAUTHENTICATED);
	return r;
}

static void what_was_signed_comes_back(void **state)
{
	struct run_claims in = claims_of(NOW + 60000), out;
	_cleanup_free_ char *text = run_token_make(&KEY, &in);

	(void)state;
	assert_int_equal(verify(text, NOW, &out), 0);
	assert_string_equal(out.agent_id, in.agent_id);
	assert_string_equal(out.company_id, in.company_id);
	assert_string_equal(out.run_id, in.run_id);
	assert_string_equal(out.adapter_type, "process");
	assert_int_equal(out.issued_at, NOW);
	assert_int_equal(out.expires_at, NOW + 60000);
	assert_true(run_token_is_shaped(text));
	assert_false(run_token_is_shaped("pcp_board_0123"));
}

static void it_is_over_at_its_end(void **state)
{
	struct run_claims in = claims_of(NOW + 60000), out;
	_cleanup_free_ char *text = run_token_make(&KEY, &in);

	(void)state;
	assert_int_equal(verify(text, NOW + 60000, &out), 0);
	assert_int_equal(verify(text, NOW + 60001, &out), -1);
}

/* Every byte of it counts. */
static void no_byte_can_be_changed(void **state)
{
	struct run_claims in = claims_of(NOW + 60000), out;
	_cleanup_free_ char *text = run_token_make(&KEY, &in);
	struct run_token_key other = { { 1, 2, 4 } };
	size_t len = strlen(text);

	(void)state;
	for (size_t i = 0; i + 1 < len; i++) {
		char was = text[i];

		text[i] = was == 'A' ? 'B' : 'A';
		assert_int_equal(verify(text, NOW, &out), -1);
		text[i] = was;
	}
	for (size_t cut = 0; cut < len; cut++) {
		_cleanup_free_ char *part = xstrndup(text, cut);

		assert_int_equal(verify(part, NOW, &out), -1);
	}
	assert_int_equal(verify(text, NOW, &out), 0);
	assert_int_equal(run_token_verify(&other, text, NOW, &out, NULL), -1);
}

static void put_part(struct buf *out, const char *text)
{
	_cleanup_buf_ struct buf plain = { 0 };

	base64_encode(&plain, text, strlen(text));
	for (size_t i = 0; i < plain.len; i++)
		if (plain.data[i] != '=')
			buf_putc(out, plain.data[i] == '+'   ? '-'
				      : plain.data[i] == '/' ? '_'
							     : plain.data[i]);
}

/* A token of another algorithm, or none, however it is signed. */
static void only_our_own_algorithm_is_known(void **state)
{
	static const char *const headers[] = { "{\"alg\":\"none\",\"typ\":\"JWT\"}",
					       "{\"alg\":\"hs256\",\"typ\":\"JWT\"}",
					       "{\"alg\":\"HS512\",\"typ\":\"JWT\"}",
					       "{\"alg\":\"RS256\",\"typ\":\"JWT\"}", "{}" };
	struct run_claims in = claims_of(NOW + 60000), out;
	_cleanup_free_ char *good = run_token_make(&KEY, &in);
	const char *body = strchr(good, '.');

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		_cleanup_buf_ struct buf text = { 0 };
		_cleanup_buf_ struct buf unsigned_text = { 0 };

		put_part(&text, headers[i]);
		buf_puts(&text, body);
		assert_int_equal(verify(buf_str(&text), NOW, &out), -1);
		put_part(&unsigned_text, headers[i]);
		buf_append(&unsigned_text, body, (size_t)(strrchr(body, '.') - body) + 1);
		assert_int_equal(verify(buf_str(&unsigned_text), NOW, &out), -1);
	}
}

static void nonsense_is_refused(void **state)
{
	static const char *const texts[] = {
		"", ".", "..", "a.b.c", "...", "a.b", "a.b.c.d", "====.====.====", "-_.-_.-_"
	};
	char *huge = xcalloc(1, 10000);
	struct run_claims out;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_int_equal(verify(texts[i], NOW, &out), -1);
	memset(huge, 'a', 9999);
	huge[10] = huge[20] = '.';
	assert_int_equal(verify(huge, NOW, &out), -1);
	free(huge);
}

static void the_key_is_made_once_and_kept_from_others(void **state)
{
	const struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct run_token_key first, again;
	struct stat st;

	assert_int_equal(run_token_key_load(t->fd, "jwt.key", &first, &err), 0);
	assert_int_equal(fstatat(t->fd, "jwt.key", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(run_token_key_load(t->fd, "jwt.key", &again, &err), 0);
	assert_memory_equal(&first, &again, sizeof(first));
	assert_memory_not_equal(&first, &KEY, sizeof(first));
	assert_int_equal(fchmodat(t->fd, "jwt.key", 0640, 0), 0);
	assert_int_equal(run_token_key_load(t->fd, "jwt.key", &again, &err), -1);
	assert_int_equal(err.code, ERR_FORBIDDEN);
}

static void a_damaged_key_is_told(void **state)
{
	const struct tempdir *t = *state;
	_cleanup_error_ struct error err = { 0 };
	struct run_token_key key;
	int fd = openat(t->fd, "jwt.key", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(write(fd, "00ff\n", 5), 5);
	close(fd);
	assert_int_equal(run_token_key_load(t->fd, "jwt.key", &key, &err), -1);
	assert_int_equal(err.code, ERR_VALIDATION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_signed_comes_back),
		cmocka_unit_test(it_is_over_at_its_end),
		cmocka_unit_test(no_byte_can_be_changed),
		cmocka_unit_test(only_our_own_algorithm_is_known),
		cmocka_unit_test(nonsense_is_refused),
		with_tempdir(the_key_is_made_once_and_kept_from_others),
		with_tempdir(a_damaged_key_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
