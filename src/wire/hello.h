/*
 * The hello: server and relay prove to each other that they hold the place's 32-byte key.
 *
 *     server  HELLO      version, min_version, features, place id, epoch, nonce
 *     relay   CHALLENGE  version, features, nonce, proof R
 *     server  PROOF      proof S
 *     relay   WELCOME, or ERROR and the end
 *
 *     proof R = HMAC(key, "berth relay proof"  | SHA256(hello payload) | version | features
 *                         | nonce)
 *     proof S = HMAC(key, "berth server proof" | SHA256(hello payload) | SHA256(challenge payload))
 *
 * Both proofs cover both nonces and the epoch (part of the hello), so neither can be replayed,
 * moved to another epoch or reflected. The relay proves itself first: a server never gives its
 * proof to a stranger, and a stranger learns from the relay's proof nothing it could use. The
 * version is the lower of both sides' newest; no overlap with either side's oldest is refused.
 *
 * The caller moves the frames and owns the key; these functions keep only what the transcript
 * needs.
 */
#pragma once

#include "base/sha256.h"
#include "wire/message.h"

#define HELLO_KEY_SIZE 32

struct hello {
	uint64_t epoch;    /* as said in HELLO */
	uint32_t version;  /* agreed */
	uint64_t features; /* of the other side */
	uint8_t hello_digest[SHA256_SIZE];
	uint8_t challenge_digest[SHA256_SIZE];
};

/* Server: appends HELLO. */
int hello_offer(struct hello *h, const char *place_id, uint64_t epoch, uint64_t features,
		struct buf *out, struct error *err);
/* Relay: takes HELLO of a connection that was handed over, which needs no proof. ERR_PROTOCOL as
 * below. */
int hello_accept(struct hello *h, const char *place_id, const struct frame *hello,
		 struct error *err);
/* Relay: takes HELLO, appends CHALLENGE. ERR_PROTOCOL: no common version, or another place is
 * meant. */
int hello_challenge(struct hello *h, const uint8_t key[HELLO_KEY_SIZE], const char *place_id,
		    uint64_t features, const struct frame *hello, struct buf *out,
		    struct error *err);
/* Server: takes CHALLENGE, checks the relay's proof, appends PROOF. ERR_UNAUTHENTICATED: an
 * impostor. */
int hello_answer(struct hello *h, const uint8_t key[HELLO_KEY_SIZE], const struct frame *challenge,
		 struct buf *out, struct error *err);
/* Relay: takes PROOF. ERR_UNAUTHENTICATED: an impostor. */
int hello_verify(const struct hello *h, const uint8_t key[HELLO_KEY_SIZE],
		 const struct frame *proof, struct error *err);

/* Also used with the keeper, whose clients are known by SO_PEERCRED and need no proof. */
int hello_agree_version(uint32_t version, uint32_t min_version, uint32_t *agreed,
			struct error *err);
