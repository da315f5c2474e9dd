#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <openssl/crypto.h>

#include "secret/secret.h"

static void a_value_lives_in_the_secure_heap(void **state)
{
	_cleanup_secret_ struct secret_text text = { 0 };
	size_t len = 0;

	(void)state;
	secret_text_set(&text, "open sesame", 11);
	assert_string_equal(secret_text_reveal(&text, &len), "open sesame");
	assert_int_equal(len, 11);
	assert_true(CRYPTO_secure_allocated(secret_text_reveal(&text, NULL)));
}

static void a_value_may_hold_nul_bytes(void **state)
{
	_cleanup_secret_ struct secret_text text = { 0 };
	size_t len = 0;

	(void)state;
	secret_text_set(&text, "a\0b", 3);
	assert_memory_equal(secret_text_reveal(&text, &len), "a\0b", 4);
	assert_int_equal(len, 3);
}

static void a_value_that_does_not_fit_is_kept_all_the_same(void **state)
{
	struct secret_text texts[32] = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		memset(secret_text_reserve(&texts[i], SECRET_VALUE_MAX), (int)('a' + i % 26),
		       SECRET_VALUE_MAX);
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_int_equal(secret_text_reveal(&texts[i], NULL)[SECRET_VALUE_MAX - 1],
				 'a' + i % 26);
		secret_text_clear(&texts[i]);
	}
}

static void trimming_and_cutting_keep_what_is_inside(void **state)
{
	_cleanup_secret_ struct secret_text text = { 0 }, same = { 0 };

	(void)state;
	secret_text_set(&text, "  key \n", 7);
	secret_text_trim(&text);
	assert_string_equal(secret_text_reveal(&text, NULL), "key");
	secret_text_copy(&same, &text);
	assert_true(secret_text_equal(&same, &text));
	secret_text_cut(&same, 2);
	assert_string_equal(secret_text_reveal(&same, NULL), "ke");
	assert_false(secret_text_equal(&same, &text));
}

static void an_empty_value_is_empty_text(void **state)
{
	struct secret_text none = { 0 };

	(void)state;
	assert_string_equal(secret_text_reveal(&none, NULL), "");
	assert_true(secret_text_equal(&none, &(struct secret_text){ 0 }));
	secret_text_clear(&none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_value_lives_in_the_secure_heap),
		cmocka_unit_test(a_value_may_hold_nul_bytes),
		cmocka_unit_test(a_value_that_does_not_fit_is_kept_all_the_same),
		cmocka_unit_test(trimming_and_cutting_keep_what_is_inside),
		cmocka_unit_test(an_empty_value_is_empty_text),
	};

	if (secret_heap_init() == SECRET_HEAP_NONE)
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
