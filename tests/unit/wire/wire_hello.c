#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <cmocka.h>
#include "base/id.h"
#include "wire/hello.h"

static void digests_agree_with_libcrypto_at_every_length_and_cut(void **state)
{
	uint8_t data[400], ours[SHA256_SIZE], theirs[SHA256_SIZE];

	(void)state;
	random_bytes(data, sizeof(data));
	for (size_t len = 0; len <= sizeof(data); len++) {
		struct sha256 s;

		sha256_init(&s);
		for (size_t pos = 0, step = 1; pos < len; pos += step, step = step * 2 % 97 + 1) {
			step = MIN_OF(step, len - pos);
			sha256_update(&s, data + pos, step);
		}
		sha256_final(&s, ours);
		assert_int_equal(EVP_Digest(data, len, theirs, NULL, EVP_sha256(), NULL), 1);
		assert_memory_equal(ours, theirs, SHA256_SIZE);
	}
}

static void macs_agree_with_libcrypto(void **state)
{
	uint8_t key[150], data[200], ours[SHA256_SIZE], theirs[SHA256_SIZE];

	(void)state;
	random_bytes(key, sizeof(key));
	random_bytes(data, sizeof(data));
	for (size_t len = 0; len <= sizeof(key); len++) {
		struct hmac h;
		unsigned size = sizeof(theirs);

		hmac_init(&h, key, len);
		hmac_update(&h, data, 77);
		hmac_update(&h, data + 77, sizeof(data) - 77);
		hmac_final(&h, ours);
		assert_non_null(
			HMAC(EVP_sha256(), key, (int)len, data, sizeof(data), theirs, &size));
		assert_memory_equal(ours, theirs, SHA256_SIZE);
	}
}

struct talk {
	uint8_t key[HELLO_KEY_SIZE];
	struct hello server, relay;
	struct buf hello, challenge, proof;
};

static struct frame frame_of(const struct buf *b)
{
	struct frame frame;
	size_t used;

	assert_int_equal(frame_parse((const uint8_t *)b->data, b->len, WIRE_HELLO_PAYLOAD, &frame,
				     &used, NULL),
			 1);
	return frame;
}

static void talk_clear(struct talk *t)
{
	buf_free(&t->hello);
	buf_free(&t->challenge);
	buf_free(&t->proof);
}

/* The first two messages, untouched. */
static void talk_begin(struct talk *t, uint64_t epoch)
{
	struct frame frame;

	memset(t, 0, sizeof(*t));
	random_bytes(t->key, sizeof(t->key));
	assert_int_equal(hello_offer(&t->server, "place", epoch, 3, &t->hello, NULL), 0);
	frame = frame_of(&t->hello);
	assert_int_equal(
		hello_challenge(&t->relay, t->key, "place", 5, &frame, &t->challenge, NULL), 0);
}

static void both_sides_accept_each_other_with_the_same_key(void **state)
{
	_cleanup_(talk_clear) struct talk t;
	struct frame frame;

	(void)state;
	talk_begin(&t, 77);
	frame = frame_of(&t.challenge);
	assert_int_equal(hello_answer(&t.server, t.key, &frame, &t.proof, NULL), 0);
	frame = frame_of(&t.proof);
	assert_int_equal(hello_verify(&t.relay, t.key, &frame, NULL), 0);
	assert_int_equal(t.relay.epoch, 77);
	assert_int_equal(t.relay.version, WIRE_VERSION);
	assert_int_equal(t.server.features, 5);
	assert_int_equal(t.relay.features, 3);
}

static void a_changed_byte_anywhere_breaks_the_proofs(void **state)
{
	_cleanup_(talk_clear) struct talk t;
	size_t accepted = 0;

	(void)state;
	talk_begin(&t, 77);
	for (size_t i = WIRE_HEADER_SIZE; i < t.challenge.len; i++) {
		struct hello server = t.server;
		_cleanup_buf_ struct buf proof = { 0 };
		struct frame frame;

		t.challenge.data[i] ^= 1;
		frame = frame_of(&t.challenge);
		accepted += hello_answer(&server, t.key, &frame, &proof, NULL) == 0;
		t.challenge.data[i] ^= 1;
	}
	assert_int_equal(accepted, 0);
	/* A middleman who lifts the epoch in the hello is found out by the relay's own proof. */
	for (size_t i = WIRE_HEADER_SIZE; i < t.hello.len; i++) {
		_cleanup_buf_ struct buf challenge = { 0 }, proof = { 0 };
		struct hello relay, server = t.server;
		struct frame frame;

		t.hello.data[i] ^= 1;
		frame = frame_of(&t.hello);
		if (hello_challenge(&relay, t.key, "place", 5, &frame, &challenge, NULL) == 0) {
			frame = frame_of(&challenge);
			accepted += hello_answer(&server, t.key, &frame, &proof, NULL) == 0;
		}
		t.hello.data[i] ^= 1;
	}
	assert_int_equal(accepted, 0);
}

static void a_proof_is_good_for_one_challenge_only(void **state)
{
	_cleanup_(talk_clear) struct talk t;
	_cleanup_buf_ struct buf again = { 0 };
	struct frame frame;

	(void)state;
	talk_begin(&t, 1);
	frame = frame_of(&t.challenge);
	assert_int_equal(hello_answer(&t.server, t.key, &frame, &t.proof, NULL), 0);
	frame = frame_of(&t.hello);
	assert_int_equal(hello_challenge(&t.relay, t.key, "place", 5, &frame, &again, NULL), 0);
	frame = frame_of(&t.proof);
	assert_int_equal(hello_verify(&t.relay, t.key, &frame, NULL), -1);
}

static void the_relays_own_proof_cannot_be_sent_back_to_it(void **state)
{
	_cleanup_(talk_clear) struct talk t;
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct wire_proof reflected;
	struct frame frame;

	(void)state;
	talk_begin(&t, 1);
	frame = frame_of(&t.challenge);
	assert_int_equal(wire_decode(&frame, &m, NULL), 0);
	memcpy(reflected.proof, m.challenge.proof, sizeof(reflected.proof));
	assert_int_equal(wire_encode(&t.proof, 0, WIRE_PROOF, &reflected, NULL), 0);
	frame = frame_of(&t.proof);
	assert_int_equal(hello_verify(&t.relay, t.key, &frame, NULL), -1);
}

static void versions_meet_at_the_lower_newest_or_not_at_all(void **state)
{
	uint32_t agreed = 0;

	(void)state;
	assert_int_equal(hello_agree_version(WIRE_VERSION + 5, WIRE_MIN_VERSION, &agreed, NULL), 0);
	assert_int_equal(agreed, WIRE_VERSION);
	assert_int_equal(hello_agree_version(WIRE_VERSION + 5, WIRE_VERSION + 1, &agreed, NULL),
			 -1);
	assert_int_equal(hello_agree_version(WIRE_MIN_VERSION - 1, 0, &agreed, NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(digests_agree_with_libcrypto_at_every_length_and_cut),
		cmocka_unit_test(macs_agree_with_libcrypto),
		cmocka_unit_test(both_sides_accept_each_other_with_the_same_key),
		cmocka_unit_test(a_changed_byte_anywhere_breaks_the_proofs),
		cmocka_unit_test(a_proof_is_good_for_one_challenge_only),
		cmocka_unit_test(the_relays_own_proof_cannot_be_sent_back_to_it),
		cmocka_unit_test(versions_meet_at_the_lower_newest_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
