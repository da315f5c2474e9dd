/*
 * Run tokens: JSON web tokens (HS256) that a run's own process is given, so that it can speak to
 * the API as its agent. The signature says that this server made it; that the run is still going is
 * looked up each time, so a token ends with its run.
 *
 * Written by hand over libcrypto's HMAC: exactly one algorithm and one shape are accepted, where
 * libraries that speak all of JOSE have had their holes.
 */
#pragma once

#include "record/record.h"

#define RUN_TOKEN_KEY_BYTES 32
#define RUN_TOKEN_TTL_MS ((int64_t)48 * 3600 * 1000)

struct run_token_key {
	unsigned char bytes[RUN_TOKEN_KEY_BYTES];
};
/*
 * Reads the key, which is made on first use with mode 0600. ERR_FORBIDDEN when others than its
 * owner may read it.
 */
int run_token_key_load(int dirfd, const char *name, struct run_token_key *key, struct error *err);

struct run_claims {
	char agent_id[ID_SIZE], company_id[ID_SIZE], run_id[ID_SIZE];
	char adapter_type[64];
	int64_t issued_at, expires_at; /* milliseconds */
};
char *run_token_make(const struct run_token_key *key, const struct run_claims *claims);
/* ERR_UNAUTHENTICATED for anything that this key has not signed, or that is over. */
int run_token_verify(const struct run_token_key *key, const char *text, int64_t now,
		     struct run_claims *claims, struct error *err);
/* Whether the text looks like one, so that it need not be looked up among the other tokens. */
bool run_token_is_shaped(const char *text);
