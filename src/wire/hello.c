#include "wire/hello.h"

#include <string.h>
#include "base/id.h"

static const char relay_label[] = "berth relay proof";
static const char server_label[] = "berth server proof";

static void relay_proof(const struct hello *h, const uint8_t key[HELLO_KEY_SIZE],
			const struct wire_challenge *c, uint8_t out[SHA256_SIZE])
{
	uint8_t numbers[12];
	struct hmac mac;

	put_le32(numbers, c->version);
	put_le64(numbers + 4, c->features);
	hmac_init(&mac, key, HELLO_KEY_SIZE);
	hmac_update(&mac, relay_label, sizeof(relay_label));
	hmac_update(&mac, h->hello_digest, sizeof(h->hello_digest));
	hmac_update(&mac, numbers, sizeof(numbers));
	hmac_update(&mac, c->nonce, sizeof(c->nonce));
	hmac_final(&mac, out);
}

static void server_proof(const struct hello *h, const uint8_t key[HELLO_KEY_SIZE],
			 uint8_t out[SHA256_SIZE])
{
	struct hmac mac;

	hmac_init(&mac, key, HELLO_KEY_SIZE);
	hmac_update(&mac, server_label, sizeof(server_label));
	hmac_update(&mac, h->hello_digest, sizeof(h->hello_digest));
	hmac_update(&mac, h->challenge_digest, sizeof(h->challenge_digest));
	hmac_final(&mac, out);
}

/* The digest of the payload of the frame just appended at `start`. */
static void digest_appended(const struct buf *out, size_t start, uint8_t digest[SHA256_SIZE])
{
	size_t skip = start + WIRE_HEADER_SIZE;

	sha256_once(out->data + skip, out->len - skip, digest);
}

static int expect(const struct frame *frame, enum wire_type type, struct wire_message *m,
		  struct error *err)
{
	if (frame->type != type || frame->stream != 0)
		return error_set(err, ERR_PROTOCOL, "expected %s, got type 0x%02x",
				 wire_type_name(type), frame->type);
	return wire_decode(frame, m, err);
}

int hello_agree_version(uint32_t version, uint32_t min_version, uint32_t *agreed, struct error *err)
{
	if (min_version > WIRE_VERSION || version < WIRE_MIN_VERSION)
		return error_set(err, ERR_PROTOCOL,
				 "the other side speaks versions %u to %u, this one %u to %u",
				 (unsigned)min_version, (unsigned)version, WIRE_MIN_VERSION,
				 WIRE_VERSION);
	*agreed = MIN_OF(version, (uint32_t)WIRE_VERSION);
	return 0;
}

int hello_offer(struct hello *h, const char *place_id, uint64_t epoch, uint64_t features,
		struct buf *out, struct error *err)
{
	struct wire_hello m = {
		.version = WIRE_VERSION,
		.min_version = WIRE_MIN_VERSION,
		.features = features,
		.place_id = place_id,
		.epoch = epoch,
	};
	size_t start = out->len;

	memset(h, 0, sizeof(*h));
	h->epoch = epoch;
	random_bytes(m.nonce, sizeof(m.nonce));
	if (wire_encode(out, 0, WIRE_HELLO, &m, err) < 0)
		return -1;
	digest_appended(out, start, h->hello_digest);
	return 0;
}

int hello_accept(struct hello *h, const char *place_id, const struct frame *hello,
		 struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };

	memset(h, 0, sizeof(*h));
	if (expect(hello, WIRE_HELLO, &m, err) < 0)
		return -1;
	if (strcmp(m.hello.place_id, place_id) != 0)
		return error_set(err, ERR_PROTOCOL, "this is not the place that was asked for");
	if (hello_agree_version(m.hello.version, m.hello.min_version, &h->version, err) < 0)
		return -1;
	h->epoch = m.hello.epoch;
	h->features = m.hello.features;
	return 0;
}

int hello_challenge(struct hello *h, const uint8_t key[HELLO_KEY_SIZE], const char *place_id,
		    uint64_t features, const struct frame *hello, struct buf *out,
		    struct error *err)
{
	struct wire_challenge c = { .features = features };
	size_t start = out->len;

	if (hello_accept(h, place_id, hello, err) < 0)
		return -1;
	sha256_once(hello->payload, hello->length, h->hello_digest);
	c.version = h->version;
	random_bytes(c.nonce, sizeof(c.nonce));
	relay_proof(h, key, &c, c.proof);
	if (wire_encode(out, 0, WIRE_CHALLENGE, &c, err) < 0)
		return -1;
	digest_appended(out, start, h->challenge_digest);
	return 0;
}

int hello_answer(struct hello *h, const uint8_t key[HELLO_KEY_SIZE], const struct frame *challenge,
		 struct buf *out, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct wire_proof p = { 0 };
	uint8_t wanted[SHA256_SIZE];

	if (expect(challenge, WIRE_CHALLENGE, &m, err) < 0)
		return -1;
	relay_proof(h, key, &m.challenge, wanted);
	if (!bytes_equal_secret(wanted, m.challenge.proof, sizeof(wanted)))
		return error_set(err, ERR_UNAUTHENTICATED,
				 "the relay does not hold the place's key");
	/* The version is looked at only now: before the proof anybody could have written it. */
	if (m.challenge.version < WIRE_MIN_VERSION || m.challenge.version > WIRE_VERSION)
		return error_set(err, ERR_PROTOCOL,
				 "the relay chose version %u, which was not offered",
				 (unsigned)m.challenge.version);
	h->version = m.challenge.version;
	h->features = m.challenge.features;
	sha256_once(challenge->payload, challenge->length, h->challenge_digest);
	server_proof(h, key, p.proof);
	return wire_encode(out, 0, WIRE_PROOF, &p, err);
}

int hello_verify(const struct hello *h, const uint8_t key[HELLO_KEY_SIZE],
		 const struct frame *proof, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	uint8_t wanted[SHA256_SIZE];

	if (expect(proof, WIRE_PROOF, &m, err) < 0)
		return -1;
	server_proof(h, key, wanted);
	if (!bytes_equal_secret(wanted, m.proof.proof, sizeof(wanted)))
		return error_set(err, ERR_UNAUTHENTICATED,
				 "the server does not hold the place's key");
	return 0;
}
